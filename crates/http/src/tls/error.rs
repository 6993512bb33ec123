//! What can be wrong with certificates and keys.

use std::{io, path::PathBuf};

/// Certificates, keys or authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read `{}`", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("`{}` is no PEM file", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// There is nothing to show in a file.
    #[error("`{}` has no certificate", .0.display())]
    NoCertificate(PathBuf),
    /// There is no certificate at all.
    #[error("there is no certificate")]
    Nothing,
    /// The certificate in a file cannot be understood.
    #[error("the certificate in `{}` cannot be understood", file.display())]
    BadCertificate {
        /// The file.
        file: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no key in a file.
    #[error("`{}` has no private key", .0.display())]
    NoKey(PathBuf),
    /// The key needs a password.
    #[error("the private key in `{}` is encrypted", .0.display())]
    EncryptedKey(PathBuf),
    /// The key in a file cannot be used.
    #[error("the private key in `{}` cannot be used", file.display())]
    BadKey {
        /// The file.
        file: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// A key is not that of the certificate.
    #[error("the key in `{}` is not that of the certificate in `{}`", key.display(), certificate.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// Nobody could ask for the certificate.
    #[error("the certificate in `{}` is for no name", .0.display())]
    NoNames(PathBuf),
    /// Clients cannot be verified.
    #[error("clients cannot be verified by `{}`", file.display())]
    ClientCa {
        /// The file.
        file: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Rustls does not take what it was given.
    #[error("TLS cannot be set up")]
    Rustls(#[from] rustls::Error),
}

impl TlsError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("let the user that the server runs as read it")
            }
            Self::Read { .. } => Some("paths are relative to the file that names them"),
            Self::Malformed { .. } | Self::NoCertificate(_) => {
                Some("it should hold the certificate, and those between it and its authority")
            }
            Self::Nothing => Some("name one in `[tls]`"),
            Self::BadCertificate { .. } => {
                Some("`openssl x509 -text -in FILE` shows what is in it")
            }
            Self::NoKey(_) => Some("name the file that begins with `-----BEGIN PRIVATE KEY-----`"),
            Self::EncryptedKey(_) => {
                Some("`openssl pkey -in FILE -out NEW` takes the password off")
            }
            Self::BadKey { .. } => Some("RSA, ECDSA (P-256, P-384) and Ed25519 keys can be used"),
            Self::Mismatch { .. } => Some(
                "name the key that the certificate was made for; the certificate comes first in \
                 its file, before those of its authorities",
            ),
            Self::NoNames(_) => Some(
                "it needs a subject alternative name: `openssl req -x509 -addext \
                 subjectAltName=DNS:example.com …`",
            ),
            Self::ClientCa { .. } => Some("it should hold the certificates of the authorities"),
            Self::Rustls(_) => None,
        }
    }
}
