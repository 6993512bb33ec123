//! TLS, with rustls: certificates by the names that are in them, and clients that have some.

mod certificates;
mod error;
mod files;
mod names;

use std::{io, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::HeaderValue;
use rustls::ServerConfig;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

pub use certificates::{CertificateFiles, Certificates, ClientAuth, Tls};
pub use error::TlsError;

use crate::{peer::Peer, preface::Protocol, transport::Socket};

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// Shakes hands. The peer learns what the handshake said.
pub(crate) async fn accept(
    socket: Socket,
    config: Arc<ServerConfig>,
    peer: &mut Peer,
) -> io::Result<(TlsStream<Socket>, Protocol)> {
    let stream = TlsAcceptor::from(config).accept(socket).await?;
    let session = stream.get_ref().1;
    peer.is_tls = true;
    peer.server_name = session.server_name().map(Into::into);
    peer.certificate = session.peer_certificates().and_then(|chain| in_header(chain.first()?));
    let is_http2 = session.alpn_protocol() == Some(HTTP2);
    Ok((stream, if is_http2 { Protocol::Http2 } else { Protocol::Http1 }))
}

/// RFC 9440 §2.1: a byte sequence of structured fields.
fn in_header(certificate: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(
        format!(":{}:", BASE64_STANDARD.encode(certificate)).into_bytes(),
    )
    .ok()
}
