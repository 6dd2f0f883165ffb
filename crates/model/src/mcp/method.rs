//! The methods and notifications of all protocol versions, by name.
//!
//! A method that is not listed is not an error here; other modules forward or refuse it.

use std::fmt;

/// A method or notification of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// `initialize`
    Initialize,
    /// `notifications/initialized`
    Initialized,
    /// `server/discover`
    ServerDiscover,
    /// `ping`
    Ping,
    /// `tools/list`
    ToolsList,
    /// `tools/call`
    ToolsCall,
    /// `prompts/list`
    PromptsList,
    /// `prompts/get`
    PromptsGet,
    /// `resources/list`
    ResourcesList,
    /// `resources/templates/list`
    ResourceTemplatesList,
    /// `resources/read`
    ResourcesRead,
    /// `resources/subscribe`
    ResourcesSubscribe,
    /// `resources/unsubscribe`
    ResourcesUnsubscribe,
    /// `subscriptions/listen`
    SubscriptionsListen,
    /// `notifications/subscriptions/acknowledged`
    SubscriptionsAcknowledged,
    /// `completion/complete`
    CompletionComplete,
    /// `logging/setLevel`
    LoggingSetLevel,
    /// `notifications/message`
    LoggingMessage,
    /// `roots/list`
    RootsList,
    /// `notifications/roots/list_changed`
    RootsListChanged,
    /// `sampling/createMessage`
    SamplingCreateMessage,
    /// `elicitation/create`
    ElicitationCreate,
    /// `notifications/elicitation/complete`
    ElicitationComplete,
    /// `tasks/get`
    TasksGet,
    /// `tasks/list`
    TasksList,
    /// `tasks/result`
    TasksResult,
    /// `tasks/update`
    TasksUpdate,
    /// `tasks/cancel`
    TasksCancel,
    /// `notifications/tasks/status`
    TasksStatus,
    /// `notifications/cancelled`
    Cancelled,
    /// `notifications/progress`
    Progress,
    /// `notifications/tools/list_changed`
    ToolsListChanged,
    /// `notifications/prompts/list_changed`
    PromptsListChanged,
    /// `notifications/resources/list_changed`
    ResourcesListChanged,
    /// `notifications/resources/updated`
    ResourcesUpdated,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 35] = [
        Self::Initialize,
        Self::Initialized,
        Self::ServerDiscover,
        Self::Ping,
        Self::ToolsList,
        Self::ToolsCall,
        Self::PromptsList,
        Self::PromptsGet,
        Self::ResourcesList,
        Self::ResourceTemplatesList,
        Self::ResourcesRead,
        Self::ResourcesSubscribe,
        Self::ResourcesUnsubscribe,
        Self::SubscriptionsListen,
        Self::SubscriptionsAcknowledged,
        Self::CompletionComplete,
        Self::LoggingSetLevel,
        Self::LoggingMessage,
        Self::RootsList,
        Self::RootsListChanged,
        Self::SamplingCreateMessage,
        Self::ElicitationCreate,
        Self::ElicitationComplete,
        Self::TasksGet,
        Self::TasksList,
        Self::TasksResult,
        Self::TasksUpdate,
        Self::TasksCancel,
        Self::TasksStatus,
        Self::Cancelled,
        Self::Progress,
        Self::ToolsListChanged,
        Self::PromptsListChanged,
        Self::ResourcesListChanged,
        Self::ResourcesUpdated,
    ];

    /// Returns the method with this name, if it is part of MCP.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            // The most frequent method first.
            "tools/call" => Some(Self::ToolsCall),
            _ => Self::ALL.into_iter().find(|method| method.as_str() == name),
        }
    }

    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Initialized => "notifications/initialized",
            Self::ServerDiscover => "server/discover",
            Self::Ping => "ping",
            Self::ToolsList => "tools/list",
            Self::ToolsCall => "tools/call",
            Self::PromptsList => "prompts/list",
            Self::PromptsGet => "prompts/get",
            Self::ResourcesList => "resources/list",
            Self::ResourceTemplatesList => "resources/templates/list",
            Self::ResourcesRead => "resources/read",
            Self::ResourcesSubscribe => "resources/subscribe",
            Self::ResourcesUnsubscribe => "resources/unsubscribe",
            Self::SubscriptionsListen => "subscriptions/listen",
            Self::SubscriptionsAcknowledged => "notifications/subscriptions/acknowledged",
            Self::CompletionComplete => "completion/complete",
            Self::LoggingSetLevel => "logging/setLevel",
            Self::LoggingMessage => "notifications/message",
            Self::RootsList => "roots/list",
            Self::RootsListChanged => "notifications/roots/list_changed",
            Self::SamplingCreateMessage => "sampling/createMessage",
            Self::ElicitationCreate => "elicitation/create",
            Self::ElicitationComplete => "notifications/elicitation/complete",
            Self::TasksGet => "tasks/get",
            Self::TasksList => "tasks/list",
            Self::TasksResult => "tasks/result",
            Self::TasksUpdate => "tasks/update",
            Self::TasksCancel => "tasks/cancel",
            Self::TasksStatus => "notifications/tasks/status",
            Self::Cancelled => "notifications/cancelled",
            Self::Progress => "notifications/progress",
            Self::ToolsListChanged => "notifications/tools/list_changed",
            Self::PromptsListChanged => "notifications/prompts/list_changed",
            Self::ResourcesListChanged => "notifications/resources/list_changed",
            Self::ResourcesUpdated => "notifications/resources/updated",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
