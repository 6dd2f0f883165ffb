//! The class of each MCP method, in both directions and in every era.
//!
//! A method that is not listed is `Unknown`, which requires a grant of everything.

/// The class of a method; every method has exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MethodClass {
    /// Listing and calling tools.
    Tool,
    /// Listing and reading resources.
    Resource,
    /// Listing and getting prompts.
    Prompt,
    /// Completing an argument of a prompt or of a resource template.
    Completion,
    /// Opening, keeping and ending a session, and messages about a request that was already
    /// checked.
    Lifecycle,
    /// Setting a server's log level, and its log messages.
    Logging,
    /// Change notifications.
    Subscription,
    /// Following tasks that outlive their request.
    Task,
    /// Everything else: methods of extensions, of later versions, and of the other direction.
    Unknown,
}

/// Returns the class of a method.
pub fn class_of(method: &str) -> MethodClass {
    match method {
        "tools/list" | "tools/call" | "notifications/tools/list_changed" => MethodClass::Tool,
        "resources/list"
        | "resources/templates/list"
        | "resources/read"
        | "notifications/resources/list_changed"
        | "notifications/resources/updated" => MethodClass::Resource,
        "prompts/list" | "prompts/get" | "notifications/prompts/list_changed" => {
            MethodClass::Prompt
        }
        "completion/complete" => MethodClass::Completion,
        "initialize"
        | "ping"
        | "server/discover"
        | "notifications/initialized"
        | "notifications/cancelled"
        | "notifications/progress"
        | "notifications/roots/list_changed" => MethodClass::Lifecycle,
        "logging/setLevel" | "notifications/message" => MethodClass::Logging,
        "resources/subscribe"
        | "resources/unsubscribe"
        | "subscriptions/listen"
        | "notifications/subscriptions/acknowledged" => MethodClass::Subscription,
        "tasks/get"
        | "tasks/list"
        | "tasks/result"
        | "tasks/update"
        | "tasks/cancel"
        | "notifications/tasks"
        | "notifications/tasks/status" => MethodClass::Task,
        _ => MethodClass::Unknown,
    }
}
