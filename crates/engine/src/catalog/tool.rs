//! What a server offers, one thing each: its definition byte for byte, and what we must know of it.
//!
//! A tool is judged when it is listed ([`Tool::admit`]): one that a client or we could not use is
//! left out with a reason. What was judged before and remembered ([`Tool::recall`]) is not judged
//! again, and its schemas are compiled when they are first needed.

use std::sync::{Arc, OnceLock};

use gantry_model::jsonrpc::{Edit, Raw, RawBuf, minify};
use gantry_model::mcp::{ListKind as WireList, TaskSupport, ToolDef};
use gantry_model::naming::is_invisible;
use sha2::{Digest, Sha256};

use super::schema::{Permits, Schema, SchemaError, Unfit, mirrored, too_costly};
use crate::error::Issue;

/// The longest name of a tool; longer than the protocol recommends, since exposed names are cut.
const LONGEST_NAME: usize = 512;
/// Schemas of longer definitions are compiled on a thread of their own.
const COMPILED_HERE: usize = 4 << 10;
/// The longest URI of a resource.
const LONGEST_URI: usize = 4096;

/// A tool of a server's, or a native one.
#[derive(Debug)]
pub(crate) struct Tool {
    /// What its server calls it.
    pub(crate) name: Arc<str>,
    /// Its definition on one line, otherwise as it was received.
    pub(crate) definition: RawBuf,
    /// The SHA-256 of the definition.
    pub(crate) hash: String,
    /// Counts up when the hash changes; 0 as long as the store has not counted.
    pub(crate) version: u32,
    schema_version: OnceLock<String>,
    has_output: bool,
    input: Compiled,
    output: Compiled,
}

type Known = Result<Arc<Schema>, SchemaError>;
type Compiled = OnceLock<Known>;

impl Tool {
    /// Judges a definition that a server listed.
    pub(crate) fn admit(raw: Raw<'_>, longest: usize) -> Result<Self, String> {
        if raw.text().len() > longest {
            return Err(format!(
                "its definition is longer than {} KiB",
                longest >> 10
            ));
        }
        let view = ToolDef::read(raw).map_err(|error| error.to_string())?;
        check_name(&view.name, LONGEST_NAME)?;
        check_members(raw)?;
        if view.task_support == TaskSupport::Required {
            return Err("it runs only as a task, which is not offered here".to_owned());
        }
        // Clients refuse a whole list for one schema of another type.
        if !view
            .input_schema
            .get("type")
            .is_some_and(|kind| kind.is_string("object"))
        {
            return Err("its `inputSchema` is not of type `object`".to_owned());
        }
        let input = Schema::of_arguments(view.input_schema);
        let input = input.map_err(|error| format!("`inputSchema`: {error}"))?;
        let output = match view.output_schema {
            Some(schema) if !schema.is_object() => {
                return Err("its `outputSchema` is no object".to_owned());
            }
            Some(schema) => {
                let schema = Schema::of_result(schema);
                Some(schema.map_err(|error| format!("`outputSchema`: {error}"))?)
            }
            None => None,
        };
        let tool = Self::new(&view, hash(raw), 0);
        // The cells are new, so nothing is lost.
        drop(tool.input.set(Ok(Arc::new(input))));
        if let Some(output) = output {
            drop(tool.output.set(Ok(Arc::new(output))));
        }
        Ok(tool)
    }

    /// Takes back a definition that was admitted once.
    pub(crate) fn recall(raw: Raw<'_>, hash: &str, version: u32) -> Option<Self> {
        let view = ToolDef::read(raw).ok()?;
        Some(Self::new(&view, hash.to_owned(), version))
    }

    fn new(view: &ToolDef<'_>, hash: String, version: u32) -> Self {
        Self {
            name: Arc::from(view.name.as_ref()),
            definition: tidy(view.raw),
            hash,
            version,
            schema_version: OnceLock::new(),
            has_output: view.output_schema.is_some(),
            input: OnceLock::new(),
            output: OnceLock::new(),
        }
    }

    /// Returns the version of the definition for the record: a counter and the beginning of a hash.
    pub(crate) fn schema_version(&self) -> &str {
        self.schema_version.get_or_init(|| {
            let short = self.hash.get(..12).unwrap_or(&self.hash);
            format!("{}-{short}", self.version)
        })
    }

    /// Tells whether the tool promises a structured result.
    pub(crate) fn has_output(&self) -> bool {
        self.has_output
    }

    /// Checks arguments; none are the same as an empty object.
    pub(crate) async fn check_arguments(
        self: &Arc<Self>,
        value: Option<Raw<'_>>,
        permits: &Permits,
    ) -> Result<(), Unfit> {
        let schema = self.compiled(Self::input, permits).await?;
        let value = value.unwrap_or(Raw::EMPTY_OBJECT);
        schema.check(value, permits).await
    }

    /// Checks a structured result.
    pub(crate) async fn check_result(
        self: &Arc<Self>,
        value: Raw<'_>,
        permits: &Permits,
    ) -> Result<(), Unfit> {
        let schema = self.compiled(Self::output, permits).await?;
        schema.check(value, permits).await
    }

    /// Returns one of the tool's schemas; one that was not needed before, and is long or has
    /// patterns, is compiled on a thread of its own.
    async fn compiled(
        self: &Arc<Self>,
        which: fn(&Self, compile: bool) -> Option<&Known>,
        permits: &Permits,
    ) -> Result<&Arc<Schema>, Unfit> {
        if which(self, false).is_none() && which(self, self.is_compiled_here()).is_none() {
            let tool = Arc::clone(self);
            let compile = move |_until| which(&tool, true).is_some();
            permits.run(compile).await?;
        }
        let schema = which(self, false).ok_or_else(|| Unfit::Issues(vec![too_costly()]))?;
        usable(schema).map_err(Unfit::Issues)
    }

    /// Tells whether compiling the schemas takes next to no time. A keyword may be written with
    /// escapes.
    fn is_compiled_here(&self) -> bool {
        let text = self.definition.text();
        text.len() <= COMPILED_HERE && !text.contains("pattern") && !text.contains("\\u")
    }

    fn input(&self, compile: bool) -> Option<&Known> {
        let init = || Schema::of_arguments(self.member("inputSchema")).map(Arc::new);
        known(&self.input, compile, init)
    }

    fn output(&self, compile: bool) -> Option<&Known> {
        let init = || Schema::of_result(self.member("outputSchema")).map(Arc::new);
        known(&self.output, compile, init)
    }

    /// Returns what a request over HTTP repeats of a call's arguments.
    pub(crate) fn mirrored(&self, arguments: Option<Raw<'_>>) -> Vec<(Box<str>, Box<str>)> {
        let arguments = arguments.unwrap_or(Raw::EMPTY_OBJECT);
        mirrored(self.member("inputSchema"), arguments)
    }

    fn member(&self, name: &str) -> Raw<'_> {
        let member = self.definition.as_raw().get(name);
        member.unwrap_or(Raw::EMPTY_OBJECT)
    }
}

/// Returns what was compiled, or compiles it now if that is wanted.
fn known(cell: &Compiled, compile: bool, init: impl FnOnce() -> Known) -> Option<&Known> {
    if compile {
        Some(cell.get_or_init(init))
    } else {
        cell.get()
    }
}

/// A prompt, a resource or a template of resources.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// What it is asked for by: the name of a prompt, the URI of a resource, a template.
    pub(crate) name: Arc<str>,
    /// Its definition on one line, otherwise as it was received.
    pub(crate) definition: RawBuf,
    /// The SHA-256 of the definition.
    pub(crate) hash: String,
    /// Counts up when the hash changes.
    pub(crate) version: u32,
}

impl Item {
    /// Judges a definition that a server listed.
    pub(crate) fn admit(kind: WireList, raw: Raw<'_>, longest: usize) -> Result<Self, String> {
        if raw.text().len() > longest {
            return Err(format!(
                "its definition is longer than {} KiB",
                longest >> 10
            ));
        }
        let name = kind.identity(raw).map_err(|error| error.to_string())?;
        let most = if kind == WireList::Prompts {
            LONGEST_NAME
        } else {
            LONGEST_URI
        };
        check_name(&name, most)?;
        Ok(Self {
            name: Arc::from(name.as_ref()),
            definition: tidy(raw),
            hash: hash(raw),
            version: 0,
        })
    }

    /// Takes back a definition that was admitted once.
    pub(crate) fn recall(kind: WireList, raw: Raw<'_>, hash: &str, version: u32) -> Option<Self> {
        let name = Arc::from(kind.identity(raw).ok()?.as_ref());
        Some(Self {
            name,
            definition: tidy(raw),
            hash: hash.to_owned(),
            version,
        })
    }
}

/// Returns a name as far as a definition has one, safe to show.
pub(crate) fn shown_name(kind: WireList, raw: Raw<'_>) -> String {
    match kind.identity(raw) {
        Ok(name) => name.chars().take(64).flat_map(char::escape_debug).collect(),
        Err(_) => "(no name)".to_owned(),
    }
}

fn usable(schema: &Known) -> Result<&Arc<Schema>, Vec<Issue>> {
    schema.as_ref().map_err(|error| {
        vec![Issue {
            path: String::new(),
            message: format!("the tool cannot be used: {error}"),
        }]
    })
}

fn check_name(name: &str, longest: usize) -> Result<(), String> {
    if name.is_empty() {
        return Err("its name is empty".to_owned());
    }
    if name.len() > longest {
        return Err(format!("its name is longer than {longest} bytes"));
    }
    if name.chars().any(char::is_control) {
        return Err("its name contains control characters".to_owned());
    }
    // Fault L4: a name must read as what it is.
    if name.chars().any(is_invisible) {
        return Err("its name contains invisible characters".to_owned());
    }
    Ok(())
}

/// Checks the members for which clients would refuse the whole list.
fn check_members(raw: Raw<'_>) -> Result<(), String> {
    for member in raw.members().filter(|member| !member.value.is_null()) {
        let value = member.value;
        if (member.is("title") || member.is("description")) && value.string().is_none() {
            return Err(format!("its {} is no string", member.key.text()));
        }
        let object = member.is("annotations") || member.is("execution") || member.is("_meta");
        if object && !value.is_object() {
            return Err(format!("its {} is no object", member.key.text()));
        }
        if member.is("icons") && !value.text().starts_with('[') {
            return Err("its \"icons\" is no array".to_owned());
        }
    }
    Ok(())
}

/// Puts a definition on one line and takes out optional members that are `null`, for which clients
/// would refuse the whole list; everything else stays byte for byte.
fn tidy(raw: Raw<'_>) -> RawBuf {
    const OPTIONAL: [&str; 11] = [
        "title",
        "description",
        "annotations",
        "outputSchema",
        "icons",
        "execution",
        "_meta",
        "arguments",
        "mimeType",
        "size",
        "inputExamples",
    ];
    let mut edit = Edit::new(raw);
    for member in raw.members().filter(|member| member.value.is_null()) {
        if let Some(key) = OPTIONAL.into_iter().find(|key| member.is(key)) {
            edit.remove(key);
        }
    }
    let tidied = edit.to_buf();
    if tidied.as_raw().is_one_line() {
        return tidied;
    }
    let line = minify(tidied.text());
    Raw::trusted(&line).to_buf()
}

fn hash(raw: Raw<'_>) -> String {
    let digest = Sha256::digest(raw.text().as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(definition: &str) -> Result<Tool, String> {
        Tool::admit(Raw::trusted(definition), 64 << 10)
    }

    #[test]
    fn a_definition_is_kept_byte_for_byte() {
        // row 2.5
        let definition = r#"{ "name" : "a\u0062", "inputSchema": {"type":"object"} , "x":1.50 }"#;
        let tool = admit(definition).unwrap();
        assert_eq!((&*tool.name, tool.definition.text()), ("ab", definition));
        assert_eq!(tool.schema_version().len(), "0-".len() + 12);
    }

    #[test]
    fn null_members_and_line_breaks_go() {
        let tool =
            admit("{\"name\":\"a\",\"description\":null,\n\"inputSchema\":{\"type\":\"object\"}}");
        let definition = tool.unwrap().definition;
        assert_eq!(
            definition.text(),
            r#"{"name":"a","inputSchema":{"type":"object"}}"#
        );
    }

    #[test]
    fn tools_that_nobody_could_use_are_left_out_with_a_reason() {
        // fault S19
        let long = format!(r#"{{"name":"a","description":"{}"}}"#, "d".repeat(70_000));
        for (definition, part) in [
            (r#"{"inputSchema":{"type":"object"}}"#, "`name` is missing"),
            (r#"{"name":"","inputSchema":{"type":"object"}}"#, "empty"),
            (
                r#"{"name":"a\u0007","inputSchema":{"type":"object"}}"#,
                "control characters",
            ),
            (
                r#"{"name":"a\u202eb","inputSchema":{"type":"object"}}"#,
                "invisible",
            ),
            (r#"{"name":"a"}"#, "`inputSchema` is missing"),
            (r#"{"name":"a","inputSchema":"text"}"#, "must be an object"),
            (
                r#"{"name":"a","inputSchema":{"type":"string"}}"#,
                "not of type `object`",
            ),
            (
                r#"{"name":"a","inputSchema":{"type":"object","required":7}}"#,
                "is invalid",
            ),
            (
                r#"{"name":"a","description":7,"inputSchema":{"type":"object"}}"#,
                "no string",
            ),
            (
                r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"$ref":"http://x/"}}"#,
                "another document",
            ),
            (
                r#"{"name":"a","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}"#,
                "only as a task",
            ),
            (&long, "longer than 64 KiB"),
        ] {
            let reason = admit(definition).unwrap_err();
            assert!(reason.contains(part), "{reason} should tell: {part}");
        }
        let name = "n".repeat(600);
        let long = format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
        assert!(admit(&long).unwrap_err().contains("longer than 512 bytes"));
    }

    #[tokio::test]
    async fn a_remembered_tool_compiles_its_schema_when_it_is_called() {
        let definition = r#"{"name":"a","inputSchema":{"type":"object","required":["x"]}}"#;
        let long = definition.replace("\"a\"", &format!("\"{}\"", "a".repeat(COMPILED_HERE)));
        for definition in [definition, &long] {
            let tool = Tool::recall(Raw::trusted(definition), "abc", 3).map(Arc::new);
            let tool = tool.unwrap();
            assert_eq!(tool.schema_version(), "3-abc");
            let Err(Unfit::Issues(issues)) = tool.check_arguments(None, &Permits::default()).await
            else {
                panic!("a field is missing")
            };
            assert_eq!(issues[0].path, "/x");
        }
    }
}
