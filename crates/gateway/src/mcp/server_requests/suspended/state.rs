//! The state that a client carries while its call is suspended, sealed with a key of this boot, so
//! that nobody else can create or change one. Entry points: [`Seal::close`], [`Seal::open`],
//! [`binding`].

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use gantry_engine::Scope;
use gantry_model::id::KeyId;
use gantry_model::jsonrpc::Raw;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The length of the nonce.
const NONCE: usize = 24;
/// The length of the plain text.
const PLAIN: usize = 8 + 8 + 32;
/// The members that a retry may change.
const FREE: [&str; 3] = ["_meta", "inputResponses", "requestState"];

/// The content of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    /// The number of the call.
    pub(super) number: u64,
    /// Its sequence number; each is valid once.
    pub(super) nonce: u64,
    /// The caller and request it is bound to.
    pub(super) binding: [u8; 32],
}

/// Closes and opens states.
pub(super) struct Seal(XChaCha20Poly1305);

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(..)")
    }
}

impl Seal {
    /// Creates a seal with a random key.
    pub(super) fn new() -> Self {
        Self(XChaCha20Poly1305::new(&drawn::<32>().into()))
    }

    /// Returns the sealed state.
    pub(super) fn close(&self, state: &State) -> String {
        let mut plain = [0; PLAIN];
        plain[..8].copy_from_slice(&state.number.to_le_bytes());
        plain[8..16].copy_from_slice(&state.nonce.to_le_bytes());
        plain[16..].copy_from_slice(&state.binding);
        let nonce = drawn::<NONCE>();
        let sealed = self.0.encrypt(&XNonce::from(nonce), plain.as_slice());
        let mut text = nonce.to_vec();
        text.extend(sealed.expect("a short text can be sealed"));
        URL_SAFE_NO_PAD.encode(text)
    }

    /// Returns the content of a state, if it is ours and unchanged.
    pub(super) fn open(&self, text: &str) -> Option<State> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE>()?;
        let plain = self.0.decrypt(&XNonce::from(*nonce), sealed).ok()?;
        let (number, rest) = plain.split_first_chunk::<8>()?;
        let (nonce, binding) = rest.split_first_chunk::<8>()?;
        Some(State {
            number: u64::from_le_bytes(*number),
            nonce: u64::from_le_bytes(*nonce),
            binding: binding.try_into().ok()?,
        })
    }
}

/// Returns a random number.
pub(super) fn random() -> u64 {
    u64::from_le_bytes(drawn())
}

fn drawn<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// Identifies a request by caller, endpoint and content, except for what a retry may change.
pub(super) fn binding(
    key: KeyId,
    scope: &Scope,
    method: &str,
    params: Option<Raw<'_>>,
) -> [u8; 32] {
    let mut hash = Sha256::new();
    let scope = match scope {
        Scope::All => "",
        Scope::Server(name) => name.as_str(),
    };
    for part in [key.to_string().as_str(), scope, method] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let params = params.and_then(|params| params.deserialize::<Value>().ok());
    let mut params = params.unwrap_or_default();
    if let Some(members) = params.as_object_mut() {
        members.retain(|key, _| !FREE.contains(&key.as_str()));
    }
    params.sort_all_objects();
    hash.update(params.to_string());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault T4
    #[test]
    fn a_state_is_good_for_the_gateway_that_made_it_and_unchanged() {
        let (ours, theirs) = (Seal::new(), Seal::new());
        let state = State {
            number: 1,
            nonce: 2,
            binding: [3; 32],
        };
        let text = ours.close(&state);
        assert_ne!(text, ours.close(&state));
        assert_eq!(ours.open(&text), Some(state));
        assert_eq!(theirs.open(&text), None);
        for place in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(ours.open(&changed).is_none(), "{place}");
        }
        for bad in ["", "x", &text[1..], &format!("{text}-TAMPERED")] {
            assert!(ours.open(bad).is_none(), "{bad}");
        }
    }

    // fault T4
    #[test]
    fn a_retry_may_add_answers_and_nothing_else() {
        let key = KeyId::from_random(1);
        let of =
            |text: &'static str| binding(key, &Scope::All, "tools/call", Some(Raw::trusted(text)));
        let first = of(r#"{"name":"a","arguments":{"x":1,"y":2},"_meta":{"progressToken":1}}"#);
        let retry = r#"{"requestState":"s","arguments":{"y":2,"x":1},"inputResponses":{"k":{}},"name":"a"}"#;
        assert_eq!(of(retry), first);
        assert_ne!(of(r#"{"name":"a","arguments":{"x":1,"y":3}}"#), first);
        assert_ne!(of(r#"{"name":"b","arguments":{"x":1,"y":2}}"#), first);
        let params = Some(Raw::trusted(retry));
        let other = KeyId::from_random(2);
        assert_ne!(binding(other, &Scope::All, "tools/call", params), first);
        assert_ne!(binding(key, &Scope::All, "prompts/get", params), first);
        let server = Scope::Server("a".parse().unwrap());
        assert_ne!(binding(key, &server, "tools/call", params), first);
    }
}
