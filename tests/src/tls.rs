//! Certificates, made for one test, and OpenSSL's client.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use crate::Run;

/// An authority, whose certificate lies in a file.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: PathBuf,
    /// Its certificate, for clients to trust.
    pub certificate: PathBuf,
}

/// A certificate and its key, in files.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

impl Authority {
    /// Makes one; its files lie in `directory`.
    ///
    /// # Panics
    /// If they cannot be written.
    pub fn new(directory: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new([]).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let certificate = directory.join(format!("{name}.pem"));
        fs::write(&certificate, issuer.pem()).expect("the directory is ours");
        Self { issuer, directory: directory.to_owned(), certificate }
    }

    /// A certificate for these names, in files called `file`. What was there is replaced in one step for
    /// each file, the key first.
    ///
    /// # Panics
    /// If they cannot be written.
    pub fn issue(&self, file: &str, names: &[&str]) -> Identity {
        self.issue_with(file, names, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a client.
    pub fn issue_client(&self, file: &str, name: &str) -> Identity {
        self.issue_with(file, &[name], ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue_with(&self, file: &str, names: &[&str], usage: ExtendedKeyUsagePurpose) -> Identity {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).expect("names");
        params.distinguished_name.push(DnType::CommonName, names[0].as_str());
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let place = |ending: &str, text: &str| {
            let path = self.directory.join(format!("{file}.{ending}"));
            let unfinished = self.directory.join(format!("{file}.{ending}.unfinished"));
            fs::write(&unfinished, text).expect("the directory is ours");
            fs::rename(&unfinished, &path).expect("the directory is ours");
            path
        };
        let key = place("key", &key.serialize_pem());
        Identity { certificate: place("pem", &certificate.pem()), key }
    }
}

impl Identity {
    /// As the configuration has it.
    pub fn toml(&self) -> String {
        format!("{{ certificate = {:?}, key = {:?} }}", self.certificate, self.key)
    }
}

/// What OpenSSL's client says of a handshake with these further arguments. It sends nothing behind it.
pub fn s_client(address: SocketAddr, arguments: &[&str]) -> Run {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &address.to_string()]).args(arguments);
    Run::of(&mut command, b"")
}
