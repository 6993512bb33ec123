//! The certificate of a client, on its way to the guest (RFC 9440).

use http::{HeaderMap, HeaderName};

use crate::peer::Peer;

const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");

/// Takes out what a client claims, and puts in what its handshake has proved.
pub(crate) fn apply(headers: &mut HeaderMap, peer: &Peer) {
    if headers.keys().any(|name| name.as_str().starts_with(CLIENT_CERT.as_str())) {
        headers.remove(CLIENT_CERT);
        headers.remove(CLIENT_CERT_CHAIN);
    }
    if let Some(certificate) = &peer.certificate {
        headers.insert(CLIENT_CERT, certificate.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_claim_a_certificate() {
        let claimed = || {
            let mut headers = HeaderMap::new();
            for name in ["client-cert", "Client-Cert-Chain", "client-certain", "accept"] {
                headers.append(name.parse::<HeaderName>().unwrap(), "x".parse().unwrap());
            }
            headers
        };
        let mut headers = claimed();
        apply(&mut headers, &Peer::default());
        assert_eq!(headers.len(), 2);
        let mut headers = claimed();
        let certificate = Some(":AAAA:".parse().unwrap());
        apply(&mut headers, &Peer { certificate, ..Peer::default() });
        assert_eq!(headers["client-cert"], ":AAAA:");
        assert_eq!(headers.len(), 3);
    }
}
