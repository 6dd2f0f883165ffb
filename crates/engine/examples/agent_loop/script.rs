//! A Messages API with a model that follows a script, as strict as the real one about what it is
//! sent: names it takes, a result for every call, in the very next message. Entry point: [`answer`].

use serde_json::{Value, json};

/// Answers a request: the next turn of the script, or 400 and what is wrong with the request.
pub(crate) fn answer(request: &Value) -> (u16, Value) {
    match check(request).and_then(|()| turn(request)) {
        Ok(answer) => (200, answer),
        Err(why) => {
            let error = json!({"type": "invalid_request_error", "message": why});
            (400, json!({"type": "error", "error": error}))
        }
    }
}

fn check(request: &Value) -> Result<(), String> {
    let tools = request["tools"].as_array().ok_or("`tools` is missing")?;
    for tool in tools {
        let name = tool["name"].as_str().unwrap_or_default();
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 128 || !name.chars().all(legal) {
            return Err(format!("`{name}` is not a tool name"));
        }
        if tool["input_schema"]["type"] != "object" {
            return Err(format!("`{name}` has no schema of an object"));
        }
    }
    let messages = request["messages"].as_array().ok_or("no `messages`")?;
    for pair in messages.windows(2) {
        let calls = blocks(&pair[0], "tool_use").map(|call| &call["id"]);
        let results = blocks(&pair[1], "tool_result").map(|result| &result["tool_use_id"]);
        let (calls, results): (Vec<_>, Vec<_>) = (calls.collect(), results.collect());
        if calls != results {
            return Err(format!("calls {calls:?} were answered by {results:?}"));
        }
    }
    Ok(())
}

fn blocks<'a>(message: &'a Value, kind: &'static str) -> impl Iterator<Item = &'a Value> {
    let blocks = message["content"].as_array().into_iter().flatten();
    blocks.filter(move |block| block["type"] == kind)
}

/// Plays one turn: a wrong call beside a right one, then its repair and a tool that is not there,
/// then the answer.
fn turn(request: &Value) -> Result<Value, String> {
    let messages = request["messages"].as_array().ok_or("no `messages`")?;
    let last = messages.last().ok_or("no message")?;
    let result = |id: &str| {
        let found = blocks(last, "tool_result").find(|result| result["tool_use_id"] == id);
        let result = found.ok_or_else(|| format!("nothing was told of `{id}`"))?;
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        Ok::<_, String>((text.to_owned(), result["is_error"] == true))
    };
    let call = |id: &str, name: &str, input: Value| json!({"type": "tool_use", "id": id, "name": name, "input": input});
    match messages.len() {
        1 => Ok(calling(vec![
            json!({"type": "text", "text": "I look it up."}),
            call("toolu_1", "native__weather", json!({"city": "Bergen"})),
            call("toolu_2", "native__fahrenheit", json!({"degrees": 8.5})),
        ])),
        3 => {
            let (weather, _) = result("toolu_1")?;
            let weather: Value = serde_json::from_str(&weather).map_err(|e| e.to_string())?;
            let (why, is_error) = result("toolu_2")?;
            if !is_error || !why.contains("celsius") {
                return Err(format!("a model cannot repair its call from `{why}`"));
            }
            let celsius = json!({"celsius": weather["celsius"]});
            Ok(calling(vec![
                call("toolu_3", "native__fahrenheit", celsius),
                call("toolu_4", "native__teleport", json!({})),
            ]))
        }
        5 => {
            let (fahrenheit, _) = result("toolu_3")?;
            let (why, is_error) = result("toolu_4")?;
            if !is_error || why != "Unknown tool: native__teleport" {
                return Err(format!("an unknown tool was answered by `{why}`"));
            }
            let text = format!("No: {fahrenheit} °F, and I cannot take you elsewhere.");
            let text = json!({"type": "text", "text": text});
            Ok(message("end_turn", vec![text]))
        }
        count => Err(format!("the script has no turn after {count} messages")),
    }
}

fn calling(content: Vec<Value>) -> Value {
    message("tool_use", content)
}

fn message(stop_reason: &str, content: Vec<Value>) -> Value {
    json!({"id": "msg", "type": "message", "role": "assistant", "model": "scripted",
        "stop_reason": stop_reason, "content": content})
}
