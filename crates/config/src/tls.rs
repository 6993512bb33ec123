//! `[tls]`: certificates, and whether clients need one.

use std::path::PathBuf;

use crate::{
    kind::{Word, array, optional, path, placed, required, table, word},
    problem::{Findings, Mistake, Placed},
    section::section,
};

/// What is needed to speak TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// `certificates`: never empty. A client gets the first that fits the name that it asks for;
    /// the first of all if none does.
    pub certificates: Vec<Certificate>,
    /// `client_auth` and `client_ca`. Default [`ClientAuth::Off`].
    pub client_auth: ClientAuth,
}

section! {
    /// A certificate and its key, in PEM files. The names that it is for stand in it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Certificate / CertificateLayer {
        /// PEM file with the certificate, and behind it those that vouch for it
        certificate: PathBuf = PathBuf::new(), required(path());
        /// PEM file with its private key
        key: PathBuf = PathBuf::new(), required(path());
    }
}

/// Whether clients show a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked.
    Off,
    /// They are asked, and may do without. One that is shown has to be valid.
    Optional {
        /// `client_ca`: the file with the certificates that vouch for clients.
        ca: PathBuf,
    },
    /// Without a valid one there is no connection.
    Required {
        /// As above.
        ca: PathBuf,
    },
}

section! {
    /// `[tls]`, as it is written.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct TlsKeys / TlsLayer {
        /// tables of a `certificate` and its `key`. A client gets the first that is for the name it
        /// asks for, and the first of all if none is. The files are read again when they change
        certificates: Vec<Certificate> = Vec::new(),
            required(array(table(), ("certificate", "tables")).not_empty());
        /// whether clients are asked for a certificate. With `"optional"` they may do without, but one
        /// that they show has to be valid
        client_auth: Placed<Asked> = Placed { value: Asked::Off, place: Default::default() },
            placed(word());
        /// PEM file with the certificates that vouch for clients
        client_ca: Option<PathBuf> = None, optional(path(), "");
    }
}

/// `client_auth`, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Off,
    Optional,
    Required,
}

impl Word for Asked {
    const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("optional", Self::Optional), ("required", Self::Required)];
}

impl TlsKeys {
    /// Whoever asks for certificates says who vouches for them.
    pub fn check(self, findings: &Findings) -> Tls {
        let Self { certificates, client_auth: Placed { value: asked, place }, client_ca } = self;
        if asked != Asked::Off && client_ca.is_none() {
            let what = "`client_auth`: nothing says who vouches for clients";
            let hint = "set `client_ca` to a PEM file with the certificates that do";
            findings.add(Mistake::new(place, what).hint(hint));
        }
        let ca = client_ca.unwrap_or_default();
        let client_auth = match asked {
            Asked::Off => ClientAuth::Off,
            Asked::Optional => ClientAuth::Optional { ca },
            Asked::Required => ClientAuth::Required { ca },
        };
        Tls { certificates, client_auth }
    }
}
