//! One connection over TCP.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use sandtide_engine::{Link, NetworkError};
use tokio::{
    io::{AsyncRead as _, AsyncWrite as _, ReadBuf},
    net::TcpStream,
    runtime::Handle,
};

use crate::allowance::Taken;

/// Makes a connection.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<TcpStream, NetworkError>> + Send>>;

pub(crate) struct TcpLink {
    stage: Stage,
    /// The event loop that it belongs to.
    event_loop: Handle,
    _taken: Taken,
}

enum Stage {
    Opening(Opening),
    Open(TcpStream),
    Failed(NetworkError),
}

impl TcpLink {
    pub(crate) fn new(opening: Opening, event_loop: Handle, taken: Taken) -> Self {
        Self { stage: Stage::Opening(opening), event_loop, _taken: taken }
    }

    fn stream(&mut self) -> Result<Pin<&mut TcpStream>, NetworkError> {
        match &mut self.stage {
            Stage::Open(stream) => Ok(Pin::new(stream)),
            Stage::Opening(_) => Err(NetworkError::Unreachable),
            Stage::Failed(error) => Err(*error),
        }
    }
}

impl Link for TcpLink {
    fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NetworkError>> {
        if let Stage::Opening(opening) = &mut self.stage {
            let _entered = self.event_loop.enter();
            self.stage = match ready!(opening.as_mut().poll(cx)) {
                Ok(stream) => Stage::Open(stream),
                Err(error) => Stage::Failed(error),
            };
        }
        Poll::Ready(self.stream().map(drop))
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, NetworkError>> {
        let mut buffer = ReadBuf::new(buffer);
        let read = ready!(self.stream()?.poll_read(cx, &mut buffer));
        Poll::Ready(read.map(|()| buffer.filled().len()).map_err(|error| explain(&error)))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, NetworkError>> {
        let written = ready!(self.stream()?.poll_write(cx, bytes));
        Poll::Ready(written.map_err(|error| explain(&error)))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NetworkError>> {
        let shut = ready!(self.stream()?.poll_shutdown(cx));
        Poll::Ready(shut.map_err(|error| explain(&error)))
    }
}

/// What a guest is told of it.
pub(crate) fn explain(error: &io::Error) -> NetworkError {
    use io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => NetworkError::Refused,
        ErrorKind::TimedOut => NetworkError::TimedOut,
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::AddrNotAvailable
        | ErrorKind::PermissionDenied => NetworkError::Unreachable,
        _ => NetworkError::Reset,
    }
}
