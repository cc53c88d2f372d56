//! The connection to the server and to the data ports of nodes, and the errors of both.

use api::control::ErrorCode;
use api::stored::cluster::{StoredNode, StoredRange};
use client::{Blocking, Client, ClientError};
use dataport::{DataClient, DataError, Peer, Token};
use filestore::{FilesError, RemoteFault};
use filetransfer::TransferError;
use ids::ConcreteId;
use std::error::Error;
use std::time::Duration;
use trust::Credentials;

/// A connection to a server, and a client for the data ports of its nodes.
pub(crate) struct Connection {
    pub server: Blocking,
    pub data: DataClient,
    /// The user who owns what is made, if no token names one.
    pub user: String,
    /// How long an answer is awaited; None leaves that to the client of the server.
    pub answer_max: Option<Duration>,
}

impl Connection {
    pub fn with(url: &str, credentials: &Credentials, user: &str) -> Result<Self, FilesError> {
        let server = Blocking::with(url, credentials).map_err(|error| of_server(&error))?;
        let runtime = server.parts().0.handle().clone();
        let data = DataClient::with(runtime, credentials)
            .map_err(|error| FilesError::Remote { fault: RemoteFault::Refused, text: sentence(&error) })?;
        Ok(Self { server, data, user: user.to_string(), answer_max: None })
    }

    /// Runs a call to its end.
    pub fn ask<T>(&self, call: impl AsyncFnOnce(&Client) -> Result<T, ClientError>) -> Result<T, FilesError> {
        let Some(limit) = self.answer_max else {
            return self.server.run(call).map_err(|error| of_server(&error));
        };
        match self.server.run(async |client| tokio::time::timeout(limit, call(client)).await) {
            Ok(answered) => answered.map_err(|error| of_server(&error)),
            Err(_) => {
                let text = format!("the server did not answer within {} s", limit.as_secs_f32());
                Err(FilesError::Remote { fault: RemoteFault::Failed, text })
            }
        }
    }

    /// Returns a client for data ports that shows this right.
    pub fn showing(&self, range: &StoredRange) -> DataClient {
        self.data.with_token(token_of(range))
    }
}

fn token_of(range: &StoredRange) -> Option<Token> {
    Token::new(range.grant.0.clone())
}

pub(crate) fn covers(range: &StoredRange, file: ConcreteId) -> bool {
    (range.first..=range.last).contains(&file)
}

pub(crate) fn peer_of(node: &StoredNode) -> Peer {
    Peer { node: node.node, url: node.data_url.clone(), incarnation: node.incarnation }
}

/// Returns an error with its causes, each of them once.
pub(crate) fn sentence(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

pub(crate) fn of_server(error: &ClientError) -> FilesError {
    let fault = match error.code() {
        Some(ErrorCode::UnknownNode | ErrorCode::TooMany | ErrorCode::Failed) => RemoteFault::Failed,
        Some(ErrorCode::NotFound) => RemoteFault::Missing,
        Some(ErrorCode::Unauthenticated | ErrorCode::Forbidden) => RemoteFault::Forbidden,
        Some(_) => RemoteFault::Refused,
        None => match error {
            ClientError::BadUrl { .. }
            | ClientError::BadProxy { .. }
            | ClientError::TooManyAddresses { .. }
            | ClientError::TokenInClear { .. }
            | ClientError::TokenForTls { .. }
            | ClientError::NobodyBelieved { .. }
            | ClientError::Untrusted { .. }
            | ClientError::Trust(_)
            | ClientError::Unreachable { .. } => RemoteFault::Refused,
            _ => RemoteFault::Failed,
        },
    };
    FilesError::Remote { fault, text: sentence(error) }
}

/// Converts an error of a transfer; parts without a replica have an error of their own.
pub(crate) fn of_transfer(error: TransferError) -> FilesError {
    match error {
        TransferError::NoReplica { name, part, replicas, reason } => {
            FilesError::OnlyReplicasLost { name, part, replicas, reason }
        }
        other => other.into(),
    }
}

/// Converts an error of a data port: another node may have more success, or this process is the cause.
pub(crate) fn of_node(error: &DataError) -> TransferError {
    match error.is_of_the_node() || error.is_wrong_token() {
        true => TransferError::Node { reason: sentence(error) },
        false => TransferError::Store(sentence(error)),
    }
}
