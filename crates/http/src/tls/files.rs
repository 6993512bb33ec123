//! Certificates and keys in PEM files.

use std::{fs, path::Path, sync::Arc};

use rustls::{
    Error, InconsistentKeys,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{Error as PemError, PemObject},
    },
    sign::CertifiedKey,
};

use super::{CertificateFiles, TlsError};

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(file).map_err(|source| TlsError::Read { file: file.to_owned(), source })
}

/// All certificates in a file; at least one.
pub(super) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&read(file)?)
        .collect::<Result<_, _>>()
        .map_err(|source| TlsError::Malformed { file: file.to_owned(), source })?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate(file.to_owned()));
    }
    Ok(certificates)
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    const ENCRYPTED: &[u8] = b"ENCRYPTED";
    let bytes = read(file)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        PemError::NoItemsFound if bytes.windows(ENCRYPTED.len()).any(|text| text == ENCRYPTED) => {
            TlsError::EncryptedKey(file.to_owned())
        }
        PemError::NoItemsFound => TlsError::NoKey(file.to_owned()),
        source => TlsError::Malformed { file: file.to_owned(), source },
    })
}

/// A certificate with the key that belongs to it.
pub(super) fn certified(
    files: &CertificateFiles,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = provider
        .key_provider
        .load_private_key(key(&files.key)?)
        .map_err(|source| TlsError::BadKey { file: files.key.clone(), source })?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // Some keys do not tell; then the first handshake does.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Arc::new(certified)),
        Err(Error::InconsistentKeys(_)) => Err(TlsError::Mismatch {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
        }),
        Err(source) => {
            Err(TlsError::BadCertificate { file: files.certificate.clone(), source: source.into() })
        }
    }
}
