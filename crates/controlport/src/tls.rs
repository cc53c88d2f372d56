//! TLS in front of HTTP: connections are taken at once and shake hands on their own, so that a slow one holds up
//! nobody else.

use axum::serve::Listener;
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Timeout, timeout};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// Whoever has not come to the end of the handshake by then is sent away.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// A port that speaks TLS.
pub(crate) struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    pub fn new(listener: TcpListener, config: Arc<ServerConfig>) -> Self {
        Self { listener, acceptor: TlsAcceptor::from(config) }
    }
}

impl Listener for TlsListener {
    type Io = TlsConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TlsConnection, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // Small messages, each waited for. What cannot be set costs only speed.
        let _ = stream.set_nodelay(true);
        let handshake = Box::pin(timeout(HANDSHAKE_MAX, self.acceptor.accept(stream)));
        (TlsConnection::ShakingHands(handshake), address)
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection, from its first byte on.
pub(crate) enum TlsConnection {
    ShakingHands(Pin<Box<Timeout<Accept<TcpStream>>>>),
    Open(Box<TlsStream<TcpStream>>),
    /// The handshake came to nothing.
    Broken,
}

impl TlsConnection {
    fn poll_open(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<Pin<&mut TlsStream<TcpStream>>>> {
        if let Self::ShakingHands(handshake) = self {
            match ready!(handshake.as_mut().poll(context)) {
                Ok(Ok(stream)) => *self = Self::Open(Box::new(stream)),
                Ok(Err(error)) => {
                    *self = Self::Broken;
                    return Poll::Ready(Err(error));
                }
                Err(_) => {
                    *self = Self::Broken;
                    return Poll::Ready(Err(Error::from(ErrorKind::TimedOut)));
                }
            }
        }
        Poll::Ready(match self {
            Self::Open(stream) => Ok(Pin::new(stream.as_mut())),
            _ => Err(Error::from(ErrorKind::NotConnected)),
        })
    }
}

impl AsyncRead for TlsConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        ready!(self.poll_open(context))?.poll_read(context, buffer)
    }
}

impl AsyncWrite for TlsConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        ready!(self.poll_open(context))?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(self.poll_open(context))?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        // A connection that never opened has nothing to end.
        match &mut *self {
            Self::Open(stream) => Pin::new(stream).poll_shutdown(context),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        ready!(self.poll_open(context))?.poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
