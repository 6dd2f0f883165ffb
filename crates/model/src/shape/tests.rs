//! Each shape as its API documents it: tools out, calls in, results out.

use serde_json::{Value, json};

use super::*;
use crate::jsonrpc::{Raw, RawBuf};

fn buf(value: &Value) -> RawBuf {
    RawBuf::serialize(value).unwrap()
}

fn value(raw: &RawBuf) -> Value {
    serde_json::from_str(raw.text()).unwrap()
}

fn definition() -> RawBuf {
    buf(&json!({
        "name": "read file",
        "title": "Read",
        "description": "Reads a file",
        "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}},
            "required": ["path"], "additionalProperties": false},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": true},
    }))
}

fn rendered(shape: Shape, definition: &RawBuf) -> Value {
    value(&tool(shape, "files__read", definition.as_raw()).unwrap())
}

// row 4.3
#[test]
fn a_tool_is_rendered_as_each_api_wants_it() {
    let definition = definition();
    let parameters = &value(&definition)["inputSchema"];
    assert_eq!(
        rendered(Shape::Anthropic, &definition),
        json!({"name": "files__read", "description": "Reads a file", "input_schema": parameters})
    );
    let function = json!({"name": "files__read", "description": "Reads a file",
        "parameters": parameters, "strict": true});
    assert_eq!(
        rendered(Shape::OpenAi, &definition),
        json!({"type": "function", "function": function})
    );
    let mut flat = function.clone();
    flat["type"] = json!("function");
    assert_eq!(rendered(Shape::OpenAiResponses, &definition), flat);
    assert_eq!(
        rendered(Shape::Gemini, &definition),
        json!({"name": "files__read", "description": "Reads a file",
            "parametersJsonSchema": parameters, "responseJsonSchema": {"type": "object"}})
    );
    let mut own = value(&definition);
    own["name"] = json!("files__read");
    assert_eq!(rendered(Shape::Mcp, &definition), own);
}

#[test]
fn a_list_is_the_value_of_a_requests_tools() {
    let definition = definition();
    for shape in Shape::ALL {
        let list = tools(
            shape,
            [("a", definition.as_raw()), ("b", definition.as_raw())],
        );
        let list = value(&list.unwrap());
        let list = if shape == Shape::Gemini {
            &list[0]["functionDeclarations"]
        } else {
            &list
        };
        assert_eq!(list.as_array().unwrap().len(), 2, "{shape}");
        let none = tools(shape, []).unwrap();
        assert_eq!(none.text(), "[]", "{shape}");
    }
}

#[test]
fn strict_is_said_only_of_schemas_that_are() {
    let open = buf(&json!({"name": "a", "inputSchema": {"type": "object"}}));
    let chat = rendered(Shape::OpenAi, &open);
    assert_eq!(chat["function"].get("strict"), None);
    // An object without properties is refused there.
    assert_eq!(
        chat["function"]["parameters"],
        json!({"type": "object", "properties": {}})
    );
    let responses = rendered(Shape::OpenAiResponses, &open);
    assert_eq!(responses["strict"], false);
}

#[test]
fn what_an_api_refuses_on_top_of_a_schema_is_told_in_words() {
    let definition = buf(
        &json!({"name": "a", "description": "Does it", "inputSchema":
        {"type": "object", "properties": {"x": {}}, "anyOf": [{"required": ["x"]}]}}),
    );
    for shape in [Shape::Anthropic, Shape::OpenAiResponses] {
        let tool = rendered(shape, &definition);
        let schema = tool.get("input_schema").or(tool.get("parameters")).unwrap();
        assert_eq!(schema.get("anyOf"), None);
        assert_eq!(
            tool["description"],
            "Does it\n\nThe arguments must also fit this JSON Schema: {\"anyOf\":[{\"required\":[\"x\"]}]}"
        );
    }
    let gemini = rendered(Shape::Gemini, &definition);
    assert!(gemini["parametersJsonSchema"]["anyOf"].is_array());
}

#[test]
fn openai_gets_no_longer_description_than_it_takes() {
    let long = buf(&json!({"name": "a", "description": "ä".repeat(2000),
        "inputSchema": {"type": "object"}}));
    let tool = rendered(Shape::OpenAiResponses, &long);
    let description = tool["description"].as_str().unwrap();
    assert_eq!(description.chars().count(), 1024);
    assert!(description.ends_with('…'));
}

/// One call in every shape, alone, with the same name, id and arguments.
fn calls() -> [(Shape, Value); 5] {
    let (name, arguments) = ("files__read", json!({"path": "a"}));
    let text = arguments.to_string();
    [
        (
            Shape::Anthropic,
            json!({"type": "tool_use", "id": "c1", "name": name, "input": arguments}),
        ),
        (
            Shape::OpenAi,
            json!({"id": "c1", "type": "function", "function": {"name": name, "arguments": text}}),
        ),
        (
            Shape::OpenAiResponses,
            json!({"type": "function_call", "id": "fc", "call_id": "c1", "name": name, "arguments": text}),
        ),
        (
            Shape::Gemini,
            json!({"functionCall": {"id": "c1", "name": name, "args": arguments}}),
        ),
        (Shape::Mcp, json!({"name": name, "arguments": arguments})),
    ]
}

// row 4.6
#[test]
fn a_call_is_read_from_every_shape_told_by_its_form() {
    for (shape, call) in calls() {
        for given in [None, Some(shape)] {
            let read = Calls::read(given, buf(&call).as_raw()).unwrap();
            assert_eq!((read.shape, read.is_list), (shape, false));
            let one = &read.calls[0];
            assert_eq!(one.name, "files__read");
            let id = Some("c1".to_owned()).filter(|_| shape != Shape::Mcp);
            assert_eq!(one.id, id, "{shape}");
            assert_eq!(one.arguments.as_ref().unwrap().text(), r#"{"path":"a"}"#);
            let list = Calls::read(given, buf(&json!([call, call])).as_raw()).unwrap();
            assert_eq!(
                (list.shape, list.is_list, list.calls.len()),
                (shape, true, 2)
            );
        }
    }
}

#[test]
fn calls_are_found_in_a_whole_message() {
    let [anthropic, chat, responses, gemini, _] = calls().map(|(_, call)| call);
    let text = json!({"type": "text", "text": "I look."});
    for (shape, message) in [
        (
            Shape::Anthropic,
            json!({"id": "m", "type": "message", "role": "assistant", "content": [text, anthropic]}),
        ),
        (
            Shape::OpenAi,
            json!({"role": "assistant", "content": null, "tool_calls": [chat]}),
        ),
        (
            Shape::OpenAi,
            json!({"choices": [{"message": {"role": "assistant", "tool_calls": [chat]}}]}),
        ),
        (
            Shape::OpenAiResponses,
            json!({"object": "response", "output": [{"type": "reasoning", "summary": []}, responses]}),
        ),
        (
            Shape::Gemini,
            json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "I look."}, gemini]}}]}),
        ),
        (Shape::Gemini, json!({"role": "model", "parts": [gemini]})),
    ] {
        let read = Calls::read(None, buf(&message).as_raw()).unwrap();
        assert_eq!(
            (read.shape, read.is_list, read.calls.len()),
            (shape, true, 1)
        );
        assert_eq!(Calls::read(Some(shape), buf(&message).as_raw()), Ok(read));
    }
}

#[test]
fn what_is_no_call_is_refused_with_a_reason() {
    let read = |shape, value: Value| Calls::read(shape, buf(&value).as_raw()).map(|_| ());
    assert_eq!(read(None, json!({"a": 1})), Err(FormError::Unknown));
    assert_eq!(read(None, json!("a")), Err(FormError::Unknown));
    let shape = Shape::Anthropic;
    let other = json!({"name": "a", "arguments": {}});
    assert_eq!(read(Some(shape), other), Err(FormError::Other { shape }));
    let talk = json!({"role": "assistant", "content": [{"type": "text", "text": "Done."}]});
    assert_eq!(read(None, talk), Err(FormError::NoCall));
    let many = vec![json!({"name": "a"}); MOST_CALLS + 1];
    let count = many.len();
    assert_eq!(read(None, many.into()), Err(FormError::TooMany { count }));
}

#[test]
fn broken_arguments_are_the_models_to_read() {
    let chat = |arguments: Value| {
        let call = json!({"id": "c", "type": "function", "function": {"name": "a", "arguments": arguments}});
        let read = Calls::read(None, buf(&call).as_raw()).unwrap();
        let arguments = read.calls[0].arguments.clone().map(RawBuf::into_text);
        arguments.map_err(|unreadable| unreadable.why)
    };
    assert_eq!(chat(json!("")), Ok("{}".to_owned()));
    assert_eq!(chat(json!(" {\"a\":1.50} ")), Ok("{\"a\":1.50}".to_owned()));
    let broken = chat(json!("{\"a\":")).unwrap_err();
    assert!(broken.contains("not valid JSON"), "{broken}");
    assert_eq!(
        chat(json!("[1]")),
        Err("`arguments` must be an object".to_owned())
    );
    let twice = chat(json!("{\"a\":1,\"a\":2}")).unwrap_err();
    assert!(twice.contains("not valid JSON"), "{twice}");
    let gemini = buf(&json!({"name": "a"}));
    let read = Calls::read(Some(Shape::Gemini), gemini.as_raw()).unwrap();
    assert_eq!(read.calls[0].arguments, Ok(Raw::EMPTY_OBJECT.to_buf()));
}

fn told(shape: Shape, result: &Value) -> Value {
    let call = ModelCall {
        id: Some("c1".to_owned()),
        name: "files__read".to_owned(),
        arguments: Ok(Raw::EMPTY_OBJECT.to_buf()),
    };
    value(&answer(shape, &call, buf(result).as_raw()))
}

#[test]
fn a_text_is_told_in_every_shape() {
    let result = json!({"content": [{"type": "text", "text": "hello"}]});
    let text = json!([{"type": "text", "text": "hello"}]);
    assert_eq!(
        told(Shape::Anthropic, &result),
        json!({"type": "tool_result", "tool_use_id": "c1", "content": text})
    );
    assert_eq!(
        told(Shape::OpenAi, &result),
        json!({"role": "tool", "tool_call_id": "c1", "content": "hello"})
    );
    assert_eq!(
        told(Shape::OpenAiResponses, &result),
        json!({"type": "function_call_output", "call_id": "c1", "output": "hello"})
    );
    assert_eq!(
        told(Shape::Gemini, &result),
        json!({"functionResponse": {"id": "c1", "name": "files__read", "response": {"output": "hello"}}})
    );
    assert_eq!(told(Shape::Mcp, &result), result);
}

// row 4.8
#[test]
fn a_failure_is_marked_as_one() {
    let result = value(&failure("Unknown tool: x"));
    let anthropic = told(Shape::Anthropic, &result);
    assert_eq!(anthropic["is_error"], true);
    assert_eq!(anthropic["content"][0]["text"], "Unknown tool: x");
    assert_eq!(
        told(Shape::OpenAi, &result)["content"],
        "Error: Unknown tool: x"
    );
    assert_eq!(
        told(Shape::OpenAiResponses, &result)["output"],
        "Error: Unknown tool: x"
    );
    assert_eq!(
        told(Shape::Gemini, &result)["functionResponse"]["response"],
        json!({"error": "Unknown tool: x"})
    );
    assert_eq!(told(Shape::Mcp, &result)["isError"], true);
}

#[test]
fn images_and_files_go_where_there_is_a_place_for_them() {
    let result = json!({"content": [
        {"type": "text", "text": "look"},
        {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "a:b", "mimeType": "application/pdf", "blob": "aGk="}},
        {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "a:c", "name": "c"},
        {"type": "text", "text": ""},
    ]});
    let audio = "[audio/wav, 5 bytes, cannot be shown here]";
    let content = &told(Shape::Anthropic, &result)["content"];
    let source = |media_type: &str, data: &str| json!({"type": "base64", "media_type": media_type, "data": data});
    assert_eq!(
        content,
        &json!([
            {"type": "text", "text": "look"},
            {"type": "image", "source": source("image/png", "aGVsbG8=")},
            {"type": "document", "source": source("application/pdf", "aGk=")},
            {"type": "text", "text": audio},
            {"type": "text", "text": "c\na:c"},
        ])
    );
    let text = told(Shape::OpenAi, &result)["content"].clone();
    let text = text.as_str().unwrap();
    assert!(text.contains("[image/png, 5 bytes, cannot be shown here]") && text.contains(audio));
    let output = &told(Shape::OpenAiResponses, &result)["output"];
    assert_eq!(
        output[1],
        json!({"type": "input_image", "image_url": "data:image/png;base64,aGVsbG8="})
    );
    assert_eq!(output[2]["type"], "input_file");
    let response = &told(Shape::Gemini, &result)["functionResponse"];
    assert_eq!(
        response["parts"][0],
        json!({"inlineData": {"mimeType": "image/png", "data": "aGVsbG8="}})
    );
    assert!(
        response["response"]["output"]
            .as_str()
            .unwrap()
            .contains(audio)
    );
}

#[test]
fn a_structured_result_reaches_the_model() {
    let result = json!({"content": [], "structuredContent": {"sum": 3}});
    assert_eq!(
        told(Shape::Anthropic, &result)["content"],
        json!([{"type": "text", "text": "{\"sum\":3}"}])
    );
    assert_eq!(told(Shape::OpenAi, &result)["content"], "{\"sum\":3}");
    assert_eq!(
        told(Shape::Gemini, &result)["functionResponse"]["response"],
        json!({"sum": 3})
    );
}

#[test]
fn shapes_are_known_by_name() {
    for shape in Shape::ALL {
        assert_eq!(shape.as_str().parse(), Ok(shape));
    }
    let error = "claude".parse::<Shape>().unwrap_err();
    assert_eq!(error.to_string(), "`claude` is not a tool format");
}
