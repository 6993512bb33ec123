//! What TLS listeners show and ask for, which can be replaced while they serve.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::CertificateDer,
    server::{ProducesTickets, WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{HTTP1, HTTP2, TlsError, files, names::ByName};

/// Which certificates there are, and whether clients need one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// At least one. Clients get the first that is for the name that they ask for, or else the
    /// first of all.
    pub certificates: Vec<CertificateFiles>,
    /// Whether clients need one.
    pub client_auth: ClientAuth,
}

/// A certificate and its key, in PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Whether clients show a certificate, and by which file of authorities it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked.
    Off,
    /// They may. One that is shown has to be valid.
    Optional(PathBuf),
    /// Without a valid one there is no connection.
    Required(PathBuf),
}

/// Certificates as they were read last. Connections that are open keep theirs.
#[derive(Debug)]
pub struct Certificates {
    latest: Mutex<(Tls, Shown)>,
    provider: Arc<CryptoProvider>,
    tickets: Arc<dyn ProducesTickets>,
    config: ArcSwap<ServerConfig>,
}

/// All certificates that were read: what is the same as before need not be taken over.
type Shown = Vec<CertificateDer<'static>>;

impl Certificates {
    /// Reads the files.
    pub fn load(tls: Tls) -> Result<Arc<Self>, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let tickets = ring::Ticketer::new()?;
        let (config, shown) = read(&tls, &provider, &tickets)?;
        let config = ArcSwap::new(config);
        Ok(Arc::new(Self { latest: Mutex::new((tls, shown)), provider, tickets, config }))
    }

    /// Reads the files again. If anything is wrong with them, what was read before stays. `false`
    /// if nothing has changed.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let tls = self.latest.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        self.replace(tls)
    }

    /// Reads these files from now on. If anything is wrong with them, all stays as it was. `false`
    /// if nothing has changed.
    pub fn replace(&self, tls: Tls) -> Result<bool, TlsError> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (config, shown) = read(&tls, &self.provider, &self.tickets)?;
        let new = (tls, shown);
        let has_changed = *latest != new;
        if has_changed {
            self.config.store(config);
            *latest = new;
        }
        Ok(has_changed)
    }

    /// For the next handshake.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }
}

fn read(
    tls: &Tls,
    provider: &Arc<CryptoProvider>,
    tickets: &Arc<dyn ProducesTickets>,
) -> Result<(Arc<ServerConfig>, Shown), TlsError> {
    if tls.certificates.is_empty() {
        return Err(TlsError::Nothing);
    }
    let mut by_name = ByName::default();
    let mut shown = Shown::new();
    for files in &tls.certificates {
        let certified = files::certified(files, provider)?;
        shown.extend_from_slice(&certified.cert);
        by_name.add(certified, files)?;
    }
    let mut authorities = |file: &Path| -> Result<_, TlsError> {
        let authorities = files::certificates(file)?;
        shown.extend_from_slice(&authorities);
        Ok(authorities)
    };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let builder = match &tls.client_auth {
        ClientAuth::Off => builder.with_no_client_auth(),
        ClientAuth::Optional(ca) => {
            let authorities = authorities(ca)?;
            builder.with_client_cert_verifier(verifier(ca, authorities, provider, false)?)
        }
        ClientAuth::Required(ca) => {
            let authorities = authorities(ca)?;
            builder.with_client_cert_verifier(verifier(ca, authorities, provider, true)?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(by_name));
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    // A ticket holds the client's certificate, which is not verified again: those of other
    // authorities must not be taken.
    config.ticketer = match tls.client_auth {
        ClientAuth::Off => tickets.clone(),
        _ => ring::Ticketer::new()?,
    };
    Ok((Arc::new(config), shown))
}

fn verifier(
    file: &Path,
    authorities: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
    is_required: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let bad = |source: Box<dyn std::error::Error + Send + Sync>| TlsError::ClientCa {
        file: file.to_owned(),
        source,
    };
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| bad(error.into()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = if is_required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| bad(error.into()))
}
