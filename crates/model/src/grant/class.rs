//! Which kind of thing each MCP method touches, in both directions and in every era.
//!
//! A method that is not listed is `Unknown`, which only a grant of everything opens.

/// What kind of thing a method touches; every method has exactly one.
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
    /// Opening, keeping and ending a conversation, and what belongs to a request already judged.
    Lifecycle,
    /// Setting a server's log level, and its log messages.
    Logging,
    /// Being told of changes.
    Subscription,
    /// Following work that outlives its request.
    Task,
    /// Everything else: methods of extensions, of the future, and of the other direction.
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
