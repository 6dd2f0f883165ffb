//! Two projects of one engine, as who embeds it sees them: the same names, and nothing in common.

use gantry_engine::model::caller::KeyKind;
use gantry_engine::model::grant::GrantSet;
use gantry_engine::model::shape::Shape;
use gantry_engine::{
    CallFilter, CallOptions, ClientIdentity, Engine, EngineConfig, NativeOutput, NativeTool,
    NewAgent, Project, Scope,
};
use serde_json::json;

/// Returns a tool that says which project it is in.
fn who(project: &Project) -> NativeTool {
    let (name, schema) = (project.name().to_string(), json!({"type": "object"}));
    NativeTool::new("who", "Says where it is", schema, move |_| {
        let name = name.clone();
        async move { Ok(NativeOutput::text(name)) }
    })
}

// rows 0.11 and 3.2
#[tokio::test(flavor = "multi_thread")]
async fn callers_of_one_name_reach_their_own_project() {
    let folder = tempfile::tempdir().unwrap();
    let config = EngineConfig::new(folder.path().join("data"));
    let engine = Engine::start(config).await.unwrap();
    let local = engine.default_project();
    let other = engine.open_project("other".parse().unwrap()).await.unwrap();
    let same = engine.open_project("other".parse().unwrap()).await.unwrap();
    assert!(std::sync::Arc::ptr_eq(&other, &same), "it is opened once");
    local.native(who(&local)).unwrap();
    let caller = |project: &Project| project.caller("bot".parse().unwrap(), GrantSet::everything());
    let revisions = || engine.list_revisions(&caller(&other), &Scope::All, ClientIdentity::Anyone);
    let before = revisions();
    assert!(engine.tools(&caller(&other), &Scope::All).is_empty());
    other.native(who(&other)).unwrap();
    let between = revisions();
    assert_ne!(before, between);
    for project in [&local, &other] {
        let message = json!({"type": "tool_use", "id": "a", "name": "native__who", "input": {}});
        let (caller, options) = (caller(project), CallOptions::default());
        let (shape, message) = (Some(Shape::Anthropic), message.to_string());
        let answers = engine.call_from(&caller, shape, &message, &options).await;
        let answer = answers.unwrap().answers.remove(0);
        assert!(answer.answer.text().contains(project.name().as_str()));
        let rows = project.calls(&CallFilter::default()).await.unwrap();
        let ids: Vec<_> = rows.iter().map(|row| Some(row.id)).collect();
        assert_eq!(ids, [answer.call], "its own calls only");
    }
    // An agent of the same name whose grants change is another's.
    let agent = || NewAgent {
        name: "bot".parse().unwrap(),
        label: String::new(),
        grants: Vec::new(),
        filter: Default::default(),
        users: Default::default(),
        limits: Default::default(),
    };
    let by = caller(&local);
    local.create_agent(&by, agent()).await.unwrap();
    other.create_agent(&by, agent()).await.unwrap();
    let name = agent().name;
    local
        .change_agent(&by, &name, Default::default())
        .await
        .unwrap();
    assert_eq!(revisions(), between);
    let (_, key) = other
        .create_key(&by, KeyKind::Agent, &name, "")
        .await
        .unwrap();
    assert_eq!(engine.authenticate(&key).unwrap().project, *other.name());
    assert_eq!(local.keys().await.unwrap().len(), 0);
    // A caller of a project that is not open reaches nothing.
    let mut stranger = caller(&local);
    stranger.project = "nowhere".parse().unwrap();
    assert!(engine.tools(&stranger, &Scope::All).is_empty());
    let message = json!({"type": "tool_use", "id": "a", "name": "native__who", "input": {}});
    let options = CallOptions::default();
    let answers = engine
        .call_from(&stranger, None, &message.to_string(), &options)
        .await;
    assert!(answers.unwrap().answers[0].is_error);
    engine.drain().await;
}
