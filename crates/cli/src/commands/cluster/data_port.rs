//! Data port of a node, to which other nodes append and from which they read.

use super::NodeArgs;
use crate::engine::machine;
use anyhow::{Context, ensure};
use api::people::{Admission, AdmissionRequest};
use client::Blocking;
use dataport::{Chunkservers, DataClient};
use listener::{ConnectionLimits, Door, HostNames};
use node::NodeLink;
use programport::ProgramPort;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use trust::{Credentials, DataIdentity, ServerConfig};

/// The data port of a node, and its client for those of others.
pub struct DataPort {
    runtime: tokio::runtime::Runtime,
    listener: std::net::TcpListener,
    tls: Option<Arc<ServerConfig>>,
    pub url: String,
    pub client: DataClient,
}

impl DataPort {
    /// Requests certificates from the server if needed, and binds the address.
    pub fn open(args: &NodeArgs, credentials: &Credentials) -> anyhow::Result<DataPort> {
        let listen = &args.listen;
        let address: SocketAddr =
            listen.parse().with_context(|| format!("--listen {listen}: give an address and a port"))?;
        ensure!(
            !address.ip().is_unspecified(),
            "--listen {listen}: give the address by which other nodes reach this machine"
        );
        let identity = DataIdentity::generate()?;
        let admission = admission(args, credentials, &identity)?;
        let tls = admission.certificates.as_deref().map(|chain| identity.data_port(chain)).transpose()?;
        ensure!(
            address.ip().is_loopback() || tls.is_some(),
            "--listen {listen} is not a loopback address, so other machines can reach it: start the server \
             with --require-tokens --tls, and give the node a token of the role node (--token-file)"
        );
        let listener = std::net::TcpListener::bind(address).with_context(|| format!("--listen {listen}"))?;
        listener.set_nonblocking(true).context("--listen")?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().context("--listen")?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("data")
            .enable_all()
            .build()
            .context("starting the threads of the data port")?;
        let client = DataClient::with(runtime.handle().clone(), credentials);
        let client = client.context("starting the data port")?;
        Ok(DataPort { runtime, listener, tls, url, client })
    }

    /// Returns the ports by which programs of this node reach the server and other nodes.
    pub fn program_port(&self, link: &NodeLink) -> ProgramPort {
        ProgramPort::new(self.runtime.handle().clone(), link.client(), self.client.clone())
    }

    /// Serves these chunkservers until the returned task is aborted.
    pub fn serve(
        &self,
        chunkservers: Arc<dyn Chunkservers>,
    ) -> anyhow::Result<tokio::task::JoinHandle<Infallible>> {
        let listener = self.listener.try_clone().context("starting the data port")?;
        let _inside = self.runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).context("starting the data port")?;
        let routes = dataport::router(chunkservers);
        let within = ConnectionLimits::within(machine::open_files_max());
        let limits = ConnectionLimits {
            // Callers have a secret, and many tasks of a node may read at once.
            connections_per_address_max: within.connections_max,
            // The routes watch the silence of bodies: a node may wait for memory, or pause for a while.
            body_pace: None,
            ..within
        };
        let names = HostNames::new(self.tls.as_ref().map(|_| trust::DATA_NAME.to_string()));
        let door = Door { tls: self.tls.clone(), names, limits, refuse: listener::plain_text };
        Ok(self.runtime.spawn(listener::serve(listener, door, routes)))
    }
}

fn admission(
    args: &NodeArgs,
    credentials: &Credentials,
    identity: &DataIdentity,
) -> anyhow::Result<Admission> {
    if credentials.bearer().is_none() && !credentials.believes_somebody() {
        return Ok(Admission::default());
    }
    let request = AdmissionRequest { certificate_request: Some(identity.request()?) };
    let connection = Blocking::with(&args.server, credentials)?;
    Ok(connection.run(async |client| client.admission(&request).await)?)
}
