//! Valid tokens of an issuer, and invalid ones.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use serde_json::{Value, json};

use super::jws::{Jwk, PublicKey};
use super::*;

const URL: &str = "https://login.example";

fn config() -> IssuerConfig {
    IssuerConfig {
        url: URL.to_owned(),
        audience: "gantry".to_owned(),
        algorithms: vec![Algorithm::Es256, Algorithm::EdDsa],
        project: ProjectName::local(),
        agent_claim: "azp".to_owned(),
        agents: BTreeMap::from([("app".to_owned(), "default".parse().unwrap())]),
        user_claim: "sub".to_owned(),
        jwks: None,
        allow_private: false,
    }
}

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// An issuer with one key of each kind.
struct Signer {
    ec: EcdsaKeyPair,
    ed: Ed25519KeyPair,
    random: SystemRandom,
}

impl Signer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let ec = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, ec.as_ref(), &random);
        let ed = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let ed = Ed25519KeyPair::from_pkcs8(ed.as_ref()).unwrap();
        Self {
            ec: ec.unwrap(),
            ed,
            random,
        }
    }

    fn published(&self) -> Vec<Value> {
        let point = self.ec.public_key().as_ref();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        vec![
            json!({"kty": "EC", "crv": "P-256", "kid": "ec", "alg": "ES256", "use": "sig",
                   "x": part(&point[1..33]), "y": part(&point[33..])}),
            json!({"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": part(self.ed.public_key().as_ref())}),
        ]
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encoded(header), encoded(claims));
        let signature = match header["kid"].as_str() {
            Some("ed") => self.ed.sign(message.as_bytes()).as_ref().to_vec(),
            _ => self
                .ec
                .sign(&self.random, message.as_bytes())
                .unwrap()
                .as_ref()
                .to_vec(),
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn tokens(signer: &Signer) -> Tokens {
    let tokens = Tokens::new(vec![config()]);
    let keys = signer.published().into_iter();
    let keys = keys.map(|key| serde_json::from_value::<Jwk>(key).unwrap());
    let keys = keys.map(|key| PublicKey::of(&key).unwrap()).collect();
    tokens.issuers[0].keys.set_for_test(keys);
    tokens
}

fn claims() -> Value {
    let now = unix_ms() / 1000;
    json!({"iss": URL, "aud": ["other", "gantry"], "azp": "app", "sub": "ada", "exp": now + 60})
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

// fault U7
#[test]
fn only_what_a_configured_issuer_signed_for_us_is_accepted() {
    let (signer, other) = (Signer::new(), Signer::new());
    let tokens = tokens(&signer);
    let (es, ed) = (
        json!({"alg": "ES256", "kid": "ec"}),
        json!({"alg": "EdDSA", "kid": "ed"}),
    );
    for header in [&es, &ed, &json!({"alg": "ES256"})] {
        let verified = tokens.verify(&signer.token(header, &claims())).unwrap();
        assert_eq!(verified.agent.as_str(), "default");
        assert_eq!(verified.user.as_deref(), Some("ada"));
    }
    let now = unix_ms() / 1000;
    let none = format!(
        "{}.{}.",
        encoded(&json!({"alg": "none"})),
        encoded(&claims())
    );
    let good = signer.token(&es, &claims());
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, _) = signed.split_once('.').unwrap();
    let swapped = format!(
        "{header}.{}.{signature}",
        encoded(&with("azp", json!("root")))
    );
    for (what, token, expected) in [
        ("none", none, TokenError::Algorithm),
        (
            "a shared secret",
            signer.token(&json!({"alg": "HS256", "kid": "ec"}), &claims()),
            TokenError::Algorithm,
        ),
        (
            "another kind of key",
            signer.token(&json!({"alg": "EdDSA", "kid": "ec"}), &claims()),
            TokenError::Key,
        ),
        (
            "an algorithm that is not listed",
            signer.token(&json!({"alg": "RS256", "kid": "ec"}), &claims()),
            TokenError::Algorithm,
        ),
        (
            "an unknown key",
            signer.token(&json!({"alg": "ES256", "kid": "../ec"}), &claims()),
            TokenError::Key,
        ),
        (
            "another's signature",
            other.token(&es, &claims()),
            TokenError::Signature,
        ),
        ("other claims", swapped, TokenError::Signature),
        ("no signature", format!("{signed}."), TokenError::Signature),
        (
            "another issuer",
            signer.token(&es, &with("iss", json!("https://evil.example"))),
            TokenError::Issuer,
        ),
        (
            "another audience",
            signer.token(&es, &with("aud", json!("other"))),
            TokenError::Audience,
        ),
        (
            "no audience",
            signer.token(&es, &with("aud", json!(null))),
            TokenError::Audience,
        ),
        (
            "expired",
            signer.token(&es, &with("exp", json!(now - 1))),
            TokenError::Expired,
        ),
        (
            "no end",
            signer.token(&es, &with("exp", json!(null))),
            TokenError::Expired,
        ),
        (
            "an end that is a text",
            signer.token(&es, &with("exp", json!("9999999999"))),
            TokenError::Expired,
        ),
        (
            "not yet",
            signer.token(&es, &with("nbf", json!(now + 3600))),
            TokenError::NotYet,
        ),
        (
            "an unmapped holder",
            signer.token(&es, &with("azp", json!("root"))),
            TokenError::Agent {
                claim: "azp".to_owned(),
            },
        ),
        (
            "no holder",
            signer.token(&es, &with("azp", json!(7))),
            TokenError::Agent {
                claim: "azp".to_owned(),
            },
        ),
    ] {
        assert_eq!(tokens.verify(&token).unwrap_err(), expected, "{what}");
    }
    let critical = signer.token(
        &json!({"alg": "ES256", "kid": "ec", "crit": ["x"]}),
        &claims(),
    );
    let crit_null = json!({"alg": "ES256", "kid": "ec", "crit": null});
    let crit_null = signer.token(&crit_null, &claims());
    // Who reads the first audience, and who the last, must not differ.
    let twice = claims().to_string().replacen('{', "{\"aud\":\"other\",", 1);
    let message = format!("{}.{}", encoded(&es), URL_SAFE_NO_PAD.encode(twice));
    let signature = signer.ec.sign(&signer.random, message.as_bytes()).unwrap();
    let twice = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature));
    for token in [
        &crit_null,
        &twice,
        "eyJ",
        "eyJ.eyJ",
        "eyJ.eyJ.eyJ.eyJ.eyJ",
        "eyJ!.e.e",
        &critical,
        &"eyJ".repeat(10_000),
    ] {
        let error = tokens.verify(token).unwrap_err();
        assert!(matches!(error, TokenError::Malformed { .. }), "{error:?}");
    }
}

// fault U6
#[test]
fn what_a_token_runs_ends_with_it_and_with_its_agent() {
    let signer = Signer::new();
    let tokens = tokens(&signer);
    let token = signer.token(&json!({"alg": "ES256", "kid": "ec"}), &claims());
    let first = tokens.verify(&token).unwrap();
    let again = tokens.verify(&token).unwrap();
    assert!(first.validity.is_same(&again.validity) && first.key == again.key);
    // Another user of the same program has nothing of this one. fault T4
    let other = with("sub", json!("eve"));
    let other = signer.token(&json!({"alg": "ES256", "kid": "ec"}), &other);
    let other = tokens.verify(&other).unwrap();
    assert!(other.agent == first.agent && other.key != first.key);
    tokens.sweep(unix_ms(), &|_, _| None);
    assert_eq!(first.validity.end_reason(), None);
    tokens.sweep(unix_ms() + 61_000, &|_, _| None);
    assert_eq!(first.validity.end_reason(), Some(KeyEnd::Expired));
    let second = tokens.verify(&token).unwrap();
    tokens.sweep(unix_ms(), &|_, _| Some(KeyEnd::Revoked));
    assert_eq!(second.validity.end_reason(), Some(KeyEnd::Revoked));
    // An ended one is checked again: its agent may have been resumed.
    let third = tokens.verify(&token).unwrap();
    third.validity.end(KeyEnd::Suspended);
    let fourth = tokens.verify(&token).unwrap();
    assert_eq!(fourth.validity.end_reason(), None);
}

// fault U6
#[test]
fn a_key_that_its_issuer_withdraws_ends_its_tokens() {
    let signer = Signer::new();
    let tokens = tokens(&signer);
    let of = |kid: &str, alg: &str| signer.token(&json!({"alg": alg, "kid": kid}), &claims());
    let (ec, ed) = (of("ec", "ES256"), of("ed", "EdDSA"));
    let (first, second) = (tokens.verify(&ec).unwrap(), tokens.verify(&ed).unwrap());
    let left = serde_json::from_value::<Jwk>(signer.published().remove(1)).unwrap();
    let left = PublicKey::of(&left).unwrap();
    tokens.issuers[0].keys.set_for_test(vec![left]);
    tokens.sweep(unix_ms(), &|_, _| None);
    assert_eq!(first.validity.end_reason(), Some(KeyEnd::Revoked));
    assert_eq!(second.validity.end_reason(), None);
    assert_eq!(tokens.verify(&ec).unwrap_err(), TokenError::Key);
}

#[test]
fn without_keys_of_the_issuer_nothing_is_accepted() {
    let signer = Signer::new();
    let tokens = Tokens::new(vec![config()]);
    let token = signer.token(&json!({"alg": "ES256", "kid": "ec"}), &claims());
    assert!(matches!(
        tokens.verify(&token),
        Err(TokenError::NoKeys { .. })
    ));
    assert!(!Tokens::new(Vec::new()).is_token(&token));
}
