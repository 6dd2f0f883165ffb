//! The pages of the authorization server: metadata, registration, sign-in, tokens, revocation.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::grants::{Code, Refresh, Registered, words};
use super::wire::{Answer, Asked, encoded};
use super::{Inner, IssuerSaid};

impl Inner {
    pub(super) fn resource_metadata(&self) -> Answer {
        let (tenant, named) = {
            let book = self.book();
            (book.tenant, book.named.clone())
        };
        let named = named.unwrap_or_else(|| self.issuer(tenant));
        let document = json!({
            "resource": self.url("/mcp"),
            "authorization_servers": [named],
            "scopes_supported": ["mcp"],
        });
        Answer::json(200, &document)
    }

    pub(super) fn metadata(&self, tenant: &str) -> Answer {
        let Ok(tenant) = tenant.parse() else {
            return Answer::new(404);
        };
        Answer::json(200, &self.document(tenant))
    }

    /// Responds with metadata of another issuer.
    pub(super) fn forged(&self) -> Answer {
        let Some(posed) = self.book().posed.clone() else {
            return Answer::new(404);
        };
        let mut document = self.document(0);
        document["issuer"] = match posed.as_str() {
            "" => Value::Null,
            posed => posed.into(),
        };
        Answer::json(200, &document)
    }

    fn document(&self, tenant: u32) -> Value {
        let issuer = self.issuer(tenant);
        let token = format!("{issuer}/token");
        let token = self.options.token_endpoint.clone().unwrap_or(token);
        let mut document = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": token,
            "revocation_endpoint": format!("{issuer}/revoke"),
            "response_types_supported": ["code"],
            "scopes_supported": ["mcp", "admin", "offline_access"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": true,
            "client_id_metadata_document_supported": !self.options.documents.is_empty(),
        });
        if self.options.registration {
            document["registration_endpoint"] = format!("{issuer}/register").into();
        }
        if self.options.pkce {
            document["code_challenge_methods_supported"] = json!(["S256"]);
        }
        document
    }

    pub(super) fn register(&self, asked: &Asked) -> Answer {
        let wish: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let redirects = wish["redirect_uris"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let redirects: Vec<String> = redirects
            .iter()
            .filter_map(|redirect| redirect.as_str().map(str::to_owned))
            .collect();
        if redirects.is_empty() {
            return refusal("invalid_redirect_uri");
        }
        let mut book = self.book();
        let id = format!("client-{}", book.registered.len() + 1);
        let secret = self.options.secrets.then(|| book.secret("secret"));
        let mut answer = json!({"client_id": id, "redirect_uris": redirects});
        if let Some(secret) = &secret {
            answer["client_secret"] = secret.as_str().into();
        }
        book.registered.insert(id, Registered { secret, redirects });
        Answer::json(201, &answer)
    }

    /// Signs in every user: who it is does not matter.
    pub(super) fn authorize(&self, tenant: u32, asked: &Asked) -> Answer {
        let query = asked.query();
        let of = |name: &str| query.get(name).cloned().unwrap_or_default();
        let (client, redirect, state) = (of("client_id"), of("redirect_uri"), of("state"));
        let mut book = self.book();
        let known = match book.registered.get(&client) {
            Some(registered) => registered.redirects.contains(&redirect),
            None => self.is_known(&client) && redirect.starts_with("http://127.0.0."),
        };
        if !known {
            return refusal("unauthorized_client");
        }
        let sound = of("response_type") == "code"
            && of("code_challenge_method") == "S256"
            && of("resource") == self.url("/mcp");
        if !sound {
            return refusal("invalid_request");
        }
        let issuer = match self.options.issuer_said {
            IssuerSaid::Right => format!("&iss={}", encoded(&self.issuer(tenant))),
            IssuerSaid::Wrong => format!("&iss={}", encoded("https://evil.example")),
            IssuerSaid::Nothing => String::new(),
        };
        let outcome = if self.options.denies {
            "error=access_denied".to_owned()
        } else {
            let code = book.secret("code");
            let given = Code {
                tenant,
                client,
                redirect: redirect.clone(),
                challenge: of("code_challenge"),
                scopes: words(query.get("scope")),
            };
            book.codes.insert(code.clone(), given);
            format!("code={code}")
        };
        let place = format!("{redirect}?{outcome}&state={}{issuer}", encoded(&state));
        Answer::new(302).with("Location", place)
    }

    pub(super) fn token(&self, tenant: u32, asked: &Asked) -> Answer {
        let form = asked.form();
        let of = |name: &str| form.get(name).cloned().unwrap_or_default();
        let (client, secret) = match basic(asked) {
            Some((client, secret)) => (client, Some(secret)),
            None => (of("client_id"), form.get("client_secret").cloned()),
        };
        if !self.is_authentic(&client, secret.as_deref()) {
            return refusal("invalid_client");
        }
        if of("resource") != self.url("/mcp") {
            return refusal("invalid_target");
        }
        let mut book = self.book();
        let scopes = match of("grant_type").as_str() {
            "authorization_code" => {
                let Some(code) = book.codes.remove(&of("code")) else {
                    return refusal("invalid_grant");
                };
                let proof = URL_SAFE_NO_PAD.encode(Sha256::digest(of("code_verifier")));
                let right = code.client == client
                    && code.tenant == tenant
                    && code.redirect == of("redirect_uri")
                    && code.challenge == proof;
                if !right {
                    return refusal("invalid_grant");
                }
                code.scopes
            }
            "refresh_token" => {
                // Each is valid once; the response has the next one.
                let Some(refresh) = book.refresh.remove(&of("refresh_token")) else {
                    return refusal("invalid_grant");
                };
                if refresh.client != client || refresh.tenant != tenant {
                    return refusal("invalid_grant");
                }
                refresh.scopes
            }
            "client_credentials" if secret.is_some() => {
                let scopes = words(form.get("scope"));
                let token = book.open(scopes, self.options.token_seconds);
                let life = self.options.token_seconds;
                let answer =
                    json!({"access_token": token, "token_type": "Bearer", "expires_in": life});
                return Answer::json(200, &answer);
            }
            _ => return refusal("unsupported_grant_type"),
        };
        let scope = scopes.iter().cloned().collect::<Vec<_>>().join(" ");
        let access = book.open(scopes.clone(), self.options.token_seconds);
        let refresh = book.secret("refresh");
        let given = Refresh {
            tenant,
            client,
            scopes,
        };
        book.refresh.insert(refresh.clone(), given);
        let answer = json!({
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": self.options.token_seconds,
            "refresh_token": refresh,
            "scope": scope,
        });
        Answer::json(200, &answer)
    }

    pub(super) fn revoke(&self, asked: &Asked) -> Answer {
        let form = asked.form();
        let token = form.get("token").cloned().unwrap_or_default();
        let mut book = self.book();
        book.refresh.remove(&token);
        book.access.remove(&token);
        Answer::new(200)
    }

    /// Tells whether a client is known without having registered itself.
    fn is_known(&self, client: &str) -> bool {
        let by_hand = self.options.clients.iter().any(|(id, _)| id == client);
        by_hand || self.options.documents.iter().any(|url| url == client)
    }

    fn is_authentic(&self, client: &str, secret: Option<&str>) -> bool {
        if let Some((_, known)) = self.options.clients.iter().find(|(id, _)| id == client) {
            return secret == Some(known);
        }
        match self.book().registered.get(client) {
            Some(registered) => registered.secret.as_deref() == secret,
            None => self.is_known(client),
        }
    }
}

/// Returns the client of HTTP Basic authentication.
fn basic(asked: &Asked) -> Option<(String, String)> {
    let text = asked.header("authorization")?.strip_prefix("Basic ")?;
    let text = String::from_utf8(STANDARD.decode(text).ok()?).ok()?;
    let (client, secret) = text.split_once(':')?;
    Some((client.to_owned(), secret.to_owned()))
}

fn refusal(error: &str) -> Answer {
    Answer::json(400, &json!({ "error": error }))
}
