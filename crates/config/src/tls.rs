//! `[tls]`: certificates, and whether clients need one.

use std::path::{Path, PathBuf};

use crate::{
    problem::{Mistake, Mistakes, all},
    reader::{Reader, Value},
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

/// A certificate and its key, in PEM files. The names that it is for stand in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// `certificate`: the file with the certificate, and behind it those that vouch for it.
    pub certificate: PathBuf,
    /// `key`: the file with its private key.
    pub key: PathBuf,
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

pub(crate) fn read(mut table: Reader<'_>, span: std::ops::Range<usize>, directory: &Path) -> Tls {
    let certificates = table.read("certificates", |value| certificates(value, directory));
    if !table.has("certificates") {
        let hint = "set `certificates = [{ certificate = \"a.pem\", key = \"a.key\" }]`";
        table.findings.add(Mistake::new(span, "`[tls]` has no certificate").hint(hint));
    }
    let ca = table.read("client_ca", |value| file(value, directory));
    let has_ca = table.has("client_ca");
    let auth = table.read("client_auth", |value| {
        let make: fn(PathBuf) -> ClientAuth = value.word(&[
            ("off", (|_| ClientAuth::Off) as fn(PathBuf) -> ClientAuth),
            ("optional", |ca| ClientAuth::Optional { ca }),
            ("required", |ca| ClientAuth::Required { ca }),
        ])?;
        let auth = make(ca.unwrap_or_default());
        if auth != ClientAuth::Off && !has_ca {
            let mistake = value.mistake("needs to know who vouches for clients");
            return Err(mistake.hint("set `client_ca` to a PEM file of certificates"));
        }
        Ok(auth)
    });
    table.finish();
    Tls {
        certificates: certificates.unwrap_or_default(),
        client_auth: auth.unwrap_or(ClientAuth::Off),
    }
}

fn certificates(value: &Value<'_>, directory: &Path) -> Result<Vec<Certificate>, Mistakes> {
    let read = |element: Value<'_>| {
        let mut table = element.reader()?;
        let mut part = |key| match table.get(key) {
            Some(value) => file(&value, directory),
            None => Err(element.mistake(format_args!("a certificate needs `{key}`"))),
        };
        let (certificate, key) = (part("certificate"), part("key"));
        table.finish();
        Ok(Certificate { certificate: certificate?, key: key? })
    };
    let certificates = all(value.one_or_more()?.into_iter().map(read))?;
    if certificates.is_empty() {
        return Err(value.mistake("needs at least one certificate").into());
    }
    Ok(certificates)
}

fn file(value: &Value<'_>, directory: &Path) -> Result<PathBuf, Mistake> {
    match value.string_without_nul()? {
        "" => Err(value.mistake("is empty")),
        path => Ok(directory.join(path)),
    }
}
