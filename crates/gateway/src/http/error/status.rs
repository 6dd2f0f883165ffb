//! The HTTP status of every error code of the gateway.

use http::StatusCode;

/// Returns the status of a code.
pub(super) fn of(code: &str) -> StatusCode {
    match code {
        "http.body_cut" | "http.framing" | "request.context" | "request.handshake"
        | "request.params" | "request.query" | "request.state" | "session.missing"
        | "wire.batch" => StatusCode::BAD_REQUEST,
        "auth.key_in_url" | "auth.no_key" | "auth.scheme" | "auth.session" | "auth.two_keys"
        | "auth.token" | "auth.wrong_code" | "auth.wrong_key" => StatusCode::UNAUTHORIZED,
        "auth.admin_key" | "auth.agent_key" | "auth.role" | "auth.source" | "auth.suspended"
        | "auth.token_agent" | "grant.approval" | "grant.arguments" | "grant.denied"
        | "grant.unbound" | "http.host" | "http.origin" => StatusCode::FORBIDDEN,
        "agent.unknown" | "call.unknown" | "http.route" | "key.unknown" | "project.unknown"
        | "server.unknown" | "session.unknown" | "tool.unknown" => StatusCode::NOT_FOUND,
        "http.method" => StatusCode::METHOD_NOT_ALLOWED,
        "http.accept" => StatusCode::NOT_ACCEPTABLE,
        "http.slow_body" => StatusCode::REQUEST_TIMEOUT,
        "product.changed" | "secret.asked_again" | "session.listening" => StatusCode::CONFLICT,
        "http.body_too_large" | "stdio.line" => StatusCode::PAYLOAD_TOO_LARGE,
        "http.content_encoding" | "http.content_type" => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "product.manifest" | "request.body" => StatusCode::UNPROCESSABLE_ENTITY,
        "auth.attempts"
        | "call.too_many_async"
        | "http.answers_full"
        | "http.bodies_share"
        | "listen.too_many"
        | "stdio.busy" => StatusCode::TOO_MANY_REQUESTS,
        "call.cancelled" => client_closed_request(),
        "server.response_too_large" | "stdio.cut" | "stdio.not_a_gateway" => {
            StatusCode::BAD_GATEWAY
        }
        "auth.stale_keys"
        | "auth.token_unavailable"
        | "http.bodies_full"
        | "session.full"
        | "stdio.down" => StatusCode::SERVICE_UNAVAILABLE,
        // `gateway.panic`, `gateway.random`, and all others.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the status for a client that disconnected before its response.
pub(super) fn client_closed_request() -> StatusCode {
    StatusCode::from_u16(499).expect("499 is a status")
}
