//! Certificates, from the configuration to the host.

use std::{path::PathBuf, sync::Arc};

use sandtide_config::{ClientAuth, Config, Tls};
use sandtide_control::Hook;
use sandtide_http::{self as http, CertificateFiles, Certificates, TlsError};

/// Reads what the configuration names.
pub fn load(tls: &Tls) -> Result<Arc<Certificates>, TlsError> {
    Certificates::load(settings(tls))
}

/// Everything that is wrong with what the configuration names; nothing is kept.
pub fn check(tls: &Tls) -> Vec<TlsError> {
    let http::Tls { certificates, client_auth } = settings(tls);
    let mut wrong = Vec::new();
    let mut right = None;
    for files in certificates {
        let alone =
            http::Tls { certificates: vec![files.clone()], client_auth: http::ClientAuth::Off };
        match Certificates::load(alone) {
            Ok(_) => right = Some(files),
            Err(error) => wrong.push(error),
        }
    }
    // Who vouches for clients is looked at behind a certificate that can be shown.
    if let Some(files) = right
        && let Err(error) = Certificates::load(http::Tls { certificates: vec![files], client_auth })
    {
        wrong.push(error);
    }
    wrong
}

/// Has the host take certificates that have changed.
pub fn hook(certificates: Arc<Certificates>) -> Hook {
    Hook {
        what: "certificates",
        files: Box::new(|config| config.tls.as_ref().map(files).unwrap_or_default()),
        apply: Box::new(move |config: &Config| match &config.tls {
            Some(tls) => Ok(certificates.replace(settings(tls))?),
            None => Ok(false),
        }),
    }
}

fn settings(tls: &Tls) -> http::Tls {
    let files = |certificate: &sandtide_config::Certificate| CertificateFiles {
        certificate: certificate.certificate.clone(),
        key: certificate.key.clone(),
    };
    let client_auth = match &tls.client_auth {
        ClientAuth::Off => http::ClientAuth::Off,
        ClientAuth::Optional { ca } => http::ClientAuth::Optional(ca.clone()),
        ClientAuth::Required { ca } => http::ClientAuth::Required(ca.clone()),
    };
    http::Tls { certificates: tls.certificates.iter().map(files).collect(), client_auth }
}

fn files(tls: &Tls) -> Vec<PathBuf> {
    let own = tls.certificates.iter().flat_map(|files| [&files.certificate, &files.key]);
    let ca = match &tls.client_auth {
        ClientAuth::Off => None,
        ClientAuth::Optional { ca } | ClientAuth::Required { ca } => Some(ca),
    };
    own.chain(ca).cloned().collect()
}
