//! Which certificate a client gets, by the name that it asks for (SNI).

use std::{collections::HashMap, sync::Arc};

use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

use super::{CertificateFiles, TlsError};

/// Certificates by name. The first is for those who ask for another name, or for none.
#[derive(Debug, Default)]
pub(super) struct ByName {
    all: Vec<Arc<CertifiedKey>>,
    /// Names in lower case; `*.` and the rest for wildcards.
    names: HashMap<String, Vec<usize>>,
}

impl ByName {
    /// Adds a certificate for the names that are in it. One that has expired is worth a warning.
    pub(super) fn add(
        &mut self,
        certified: Arc<CertifiedKey>,
        files: &CertificateFiles,
    ) -> Result<(), TlsError> {
        let file = &files.certificate;
        let bad = |source: Box<dyn std::error::Error + Send + Sync>| TlsError::BadCertificate {
            file: file.clone(),
            source,
        };
        let Some(first) = certified.cert.first() else {
            return Err(TlsError::NoCertificate(file.clone()));
        };
        let (_, certificate) = parse_x509_certificate(first).map_err(|error| bad(error.into()))?;
        if !certificate.validity().is_valid() {
            let (from, to) = (certificate.validity().not_before, certificate.validity().not_after);
            tracing::warn!(
                file = %file.display(), %from, %to,
                "a certificate is not valid at this time; clients will refuse it",
            );
        }
        let index = self.all.len();
        let names = certificate.subject_alternative_name().map_err(|error| bad(error.into()))?;
        let mut has_name = false;
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::DNSName(name) => {
                    self.names.entry(name.to_ascii_lowercase()).or_default().push(index);
                    has_name = true;
                }
                // Nobody may ask for an address by SNI.
                GeneralName::IPAddress(_) => has_name = true,
                _ => {}
            }
        }
        if !has_name {
            return Err(TlsError::NoNames(file.clone()));
        }
        self.all.push(certified);
        Ok(())
    }

    /// Certificates for this name, in their order; a wildcard is for one label.
    fn of(&self, name: &str) -> impl Iterator<Item = &Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        let wildcard = name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        let wildcard = wildcard.and_then(|wildcard| self.names.get(&wildcard));
        let named = self.names.get(&name).into_iter().chain(wildcard).flatten();
        named.filter_map(|index| self.all.get(*index))
    }
}

impl ResolvesServerCert for ByName {
    /// The first that the client can verify; the default if none is for it.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let fits = |certified: &&Arc<CertifiedKey>| certified.key.choose_scheme(schemes).is_some();
        let named = hello.server_name().and_then(|name| self.of(name).find(fits));
        named.or_else(|| self.all.first()).cloned()
    }
}
