//! Signed tokens in compact form (RFC 7515), and keys that verify them (RFC 7517).
//!
//! The algorithm is from a closed list without `none` and without shared secrets, and must match
//! the kind of the key, so that a public key is never used as a secret (fault U7). ring verifies.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gantry_model::jsonrpc::{self, Limits};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

use super::TokenError;

/// How a token may be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA PKCS#1 with SHA-256.
    Rs256,
    /// RSA PKCS#1 with SHA-384.
    Rs384,
    /// RSA PKCS#1 with SHA-512.
    Rs512,
    /// RSA PSS with SHA-256.
    Ps256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 7] = [
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
    ];

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        let mut all = Self::ALL.iter();
        let found = all.find(|(_, known)| *known == self);
        found.map_or("", |(name, _)| name)
    }
}

/// The error of an unsupported algorithm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("supported are RS256, RS384, RS512, PS256, ES256, ES384 and EdDSA")]
pub struct UnknownAlgorithm;

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let mut all = Self::ALL.iter();
        let found = all.find(|(known, _)| *known == name);
        found.map(|(_, known)| *known).ok_or(UnknownAlgorithm)
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, deserialize_with = "some")]
    crit: Option<serde_json::Value>,
}

/// Reads what is there, `null` included.
fn some<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(value).map(Some)
}

/// A parsed token whose signature is not verified yet.
pub(super) struct Signed<'a> {
    /// The signed part.
    message: &'a [u8],
    signature: Vec<u8>,
    payload: Vec<u8>,
    algorithm: Algorithm,
    key_id: Option<String>,
}

impl<'a> Signed<'a> {
    /// Parses a token.
    pub(super) fn parse(token: &'a str) -> Result<Self, TokenError> {
        let malformed = |why| TokenError::Malformed { why };
        let mut parts = token.split('.');
        let three = (parts.next(), parts.next(), parts.next(), parts.next());
        let (Some(header), Some(payload), Some(signature), None) = three else {
            return Err(malformed("it does not have three parts"));
        };
        let decoded = |part: &str| {
            let decoded = URL_SAFE_NO_PAD.decode(part);
            decoded.map_err(|_| malformed("a part is not base64url"))
        };
        // No member twice, at any depth: others might read the other one.
        let document = |part: &str| {
            let bytes = decoded(part)?;
            let text = std::str::from_utf8(&bytes).ok();
            let is_strict =
                text.is_some_and(|text| jsonrpc::validate(text, &Limits::default()).is_ok());
            match is_strict {
                true => Ok(bytes),
                false => Err(malformed("a part is not JSON, or has a member twice")),
            }
        };
        let head: Header = serde_json::from_slice(&document(header)?)
            .map_err(|_| malformed("its header is not valid"))?;
        if head.crit.is_some() {
            return Err(malformed("its header has critical extensions"));
        }
        Ok(Self {
            message: &token.as_bytes()[..header.len() + 1 + payload.len()],
            signature: decoded(signature)?,
            payload: document(payload)?,
            algorithm: head
                .alg
                .parse()
                .map_err(|UnknownAlgorithm| TokenError::Algorithm)?,
            key_id: head.kid,
        })
    }

    /// Returns the claimed issuer; only to find the keys that may prove it.
    pub(super) fn issuer(&self) -> Result<String, TokenError> {
        #[derive(Deserialize)]
        struct Claim {
            iss: String,
        }
        let claim: Claim = serde_json::from_slice(&self.payload).map_err(|_| TokenError::Issuer)?;
        Ok(claim.iss)
    }

    /// Returns its algorithm.
    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the signed claims.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }
}

/// A public key of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PublicKey {
    id: Option<String>,
    /// The algorithm it is for, if it says so.
    algorithm: Option<Algorithm>,
    material: Material,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A key as an issuer publishes it.
#[derive(Deserialize)]
pub(super) struct Jwk {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default, rename = "use")]
    purpose: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

impl PublicKey {
    /// Reads a published key; `None` if its kind is not supported.
    pub(super) fn of(jwk: &Jwk) -> Option<Self> {
        if jwk
            .purpose
            .as_deref()
            .is_some_and(|purpose| purpose != "sig")
        {
            return None;
        }
        let decoded = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let point = |length: usize| {
            let (x, y) = (decoded(&jwk.x)?, decoded(&jwk.y)?);
            (x.len() == length && y.len() == length).then(|| [&[4], x.as_slice(), &y].concat())
        };
        let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => Material::Rsa {
                n: decoded(&jwk.n)?,
                e: decoded(&jwk.e)?,
            },
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(decoded(&jwk.x)?),
            _ => return None,
        };
        let algorithm = match &jwk.alg {
            Some(name) => Some(name.parse().ok()?),
            None => None,
        };
        Some(Self {
            id: jwk.kid.clone(),
            algorithm,
            material,
        })
    }

    /// Returns whether it may have signed a token: by its id and algorithm.
    pub(super) fn fits(&self, signed: &Signed<'_>) -> bool {
        let is_named = match (&signed.key_id, &self.id) {
            (Some(wanted), Some(id)) => wanted == id,
            (Some(_), None) => false,
            (None, _) => true,
        };
        is_named && self.algorithm.is_none_or(|own| own == signed.algorithm)
    }

    /// Verifies the signature of a token.
    pub(super) fn has_signed(&self, signed: &Signed<'_>) -> bool {
        let (message, signature) = (signed.message, signed.signature.as_slice());
        let rsa = |parameters, n: &[u8], e: &[u8]| {
            let key = RsaPublicKeyComponents { n, e };
            key.verify(parameters, message, signature).is_ok()
        };
        let plain = |algorithm, key: &[u8]| {
            let key = UnparsedPublicKey::new(algorithm, key);
            key.verify(message, signature).is_ok()
        };
        match (signed.algorithm, &self.material) {
            (Algorithm::Rs256, Material::Rsa { n, e }) => {
                rsa(&signature::RSA_PKCS1_2048_8192_SHA256, n, e)
            }
            (Algorithm::Rs384, Material::Rsa { n, e }) => {
                rsa(&signature::RSA_PKCS1_2048_8192_SHA384, n, e)
            }
            (Algorithm::Rs512, Material::Rsa { n, e }) => {
                rsa(&signature::RSA_PKCS1_2048_8192_SHA512, n, e)
            }
            (Algorithm::Ps256, Material::Rsa { n, e }) => {
                rsa(&signature::RSA_PSS_2048_8192_SHA256, n, e)
            }
            (Algorithm::Es256, Material::P256(key)) => plain(
                &signature::ECDSA_P256_SHA256_FIXED as &dyn signature::VerificationAlgorithm,
                key,
            ),
            (Algorithm::Es384, Material::P384(key)) => {
                plain(&signature::ECDSA_P384_SHA384_FIXED, key)
            }
            (Algorithm::EdDsa, Material::Ed25519(key)) => plain(&signature::ED25519, key),
            // An algorithm never uses a key of another kind.
            _ => false,
        }
    }
}
