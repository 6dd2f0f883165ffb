//! A tool, prompt or resource that a server offers: its definition byte for byte, and what the
//! gateway must know of it.
//!
//! A tool is checked when it is listed ([`Tool::admit`]): an unusable one is left out with a reason.
//! Parts of its schemas that cannot be checked are listed ([`Tool::unchecked`]) and do no harm. A
//! stored tool ([`Tool::recall`]) is not checked again, and its schemas are compiled when they are
//! first needed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use gantry_model::era::meta;
use gantry_model::grant::ReadOnlyHint;
use gantry_model::hidden::{clean, clean_texts};
use gantry_model::jsonrpc::{Edit, Raw, RawBuf, RawKind, minify};
use gantry_model::mcp::{ListKind as WireList, TaskSupport, ToolDef};
use gantry_model::naming::is_invisible;
use gantry_model::pin::content_hash;

use crate::error::Issue;
use crate::schema::{
    Permits, Schema, SchemaError, SchemaMismatch, Unchecked, mirrored, too_costly,
};

/// The longest name of a tool, in bytes; longer than the protocol recommends, since exposed names
/// are shortened.
const LONGEST_NAME: usize = 512;
/// Schemas of longer definitions are compiled on a blocking thread.
const COMPILED_HERE: usize = 4 << 10;
/// The longest URI of a resource.
const LONGEST_URI: usize = 4096;

/// A tool of a server, or a native one.
#[derive(Debug)]
pub(crate) struct Tool {
    /// The server's name for it.
    pub(crate) name: Arc<str>,
    /// Its definition on one line, otherwise as it was received.
    pub(crate) definition: RawBuf,
    /// The SHA-256 of the definition in its canonical form.
    pub(crate) hash: String,
    /// Increases when the hash changes; 0 until the store has assigned it.
    pub(crate) version: u32,
    schema_version: OnceLock<String>,
    has_output: bool,
    /// It says that it changes nothing.
    says_read_only: bool,
    /// This version is offered though nobody approved it.
    is_unapproved: AtomicBool,
    /// Whether the server's output schema is invalid, and is not shown.
    has_odd_output: bool,
    input: Compiled,
    output: Compiled,
    /// The parts of the schemas that are not checked.
    unchecked: OnceLock<Vec<Unchecked>>,
}

type Known = Result<Arc<Schema>, SchemaError>;
type Compiled = OnceLock<Known>;

impl Tool {
    /// Checks a definition, and compiles its schemas.
    pub(crate) fn admit(raw: Raw<'_>, longest: usize) -> Result<Self, String> {
        Self::admit_listed(raw, content_hash(raw), longest)
    }

    /// Checks a listed definition with this hash, and compiles its schemas.
    pub(crate) fn admit_listed(raw: Raw<'_>, hash: String, longest: usize) -> Result<Self, String> {
        let tool = Self::judge(raw, hash, longest)?;
        tool.input(true);
        if tool.has_output {
            tool.output(true);
        }
        tool.unchecked();
        Ok(tool)
    }

    /// Checks a listed definition; its schemas are compiled on first use.
    pub(crate) fn admit_uncompiled(
        raw: Raw<'_>,
        hash: String,
        longest: usize,
    ) -> Result<Self, String> {
        let tool = Self::judge(raw, hash, longest)?;
        tool.unchecked();
        Ok(tool)
    }

    fn judge(raw: Raw<'_>, hash: String, longest: usize) -> Result<Self, String> {
        if raw.text().len() > longest {
            return Err(format!(
                "its definition is longer than {} KiB",
                longest >> 10
            ));
        }
        let view = ToolDef::read(raw).map_err(|error| error.to_string())?;
        check_name(&view.name, LONGEST_NAME)?;
        if view.task_support == TaskSupport::Required {
            return Err("it runs only as a task, which is not offered here".to_owned());
        }
        if kind_of_input(view.input_schema) == InputKind::Other {
            return Err("its `inputSchema` is not of type `object`".to_owned());
        }
        Schema::check_headers(view.input_schema)
            .map_err(|error| format!("`inputSchema`: {error}"))?;
        Ok(Self::new(&view, shown(tidy_tool(&view)), hash, 0))
    }

    /// Restores a stored definition that was checked before.
    pub(crate) fn recall(raw: Raw<'_>, hash: &str, version: u32) -> Option<Self> {
        let view = ToolDef::read(raw).ok()?;
        Some(Self::new(&view, tidy(raw), hash.to_owned(), version))
    }

    fn new(view: &ToolDef<'_>, definition: RawBuf, hash: String, version: u32) -> Self {
        Self {
            name: Arc::from(view.name.as_ref()),
            definition,
            hash,
            version,
            schema_version: OnceLock::new(),
            has_output: view.output_schema.is_some_and(Raw::is_object),
            is_unapproved: AtomicBool::new(false),
            says_read_only: view
                .annotations
                .and_then(|annotations| annotations.get("readOnlyHint"))
                .and_then(Raw::boolean)
                .unwrap_or(false),
            has_odd_output: view.output_schema.is_some_and(|schema| !schema.is_object()),
            input: OnceLock::new(),
            output: OnceLock::new(),
            unchecked: OnceLock::new(),
        }
    }

    /// Returns the parts of the schemas that are not checked, and why. Examines the schemas on
    /// first use, which takes time.
    pub(crate) fn unchecked(&self) -> &[Unchecked] {
        self.unchecked.get_or_init(|| self.find_unchecked())
    }

    fn find_unchecked(&self) -> Vec<Unchecked> {
        let mut found = Vec::new();
        let mut look = |member: &str, known: Option<&Known>| {
            let compiled = known.and_then(|known| known.as_ref().ok());
            let parts = match compiled {
                Some(schema) => schema.unchecked().to_vec(),
                None => Schema::unchecked_of(self.member(member)),
            };
            found.extend(parts.into_iter().map(|part| Unchecked {
                part: format!("{member}{}", part.part),
                reason: part.reason,
            }));
        };
        look("inputSchema", self.input(false));
        if self.has_output {
            look("outputSchema", self.output(false));
        }
        if self.has_odd_output {
            found.push(Unchecked {
                part: "outputSchema".to_owned(),
                reason: "it is not an object".to_owned(),
            });
        }
        found
    }

    /// Returns the schemas in which patterns took too long, and how many texts were left unchecked.
    pub(crate) fn unjudged(&self) -> impl Iterator<Item = Unchecked> {
        let schemas = [("inputSchema", &self.input), ("outputSchema", &self.output)];
        schemas.into_iter().filter_map(|(part, known)| {
            let schema = known.get()?.as_ref().ok()?;
            let count = schema.unjudged_texts();
            (count > 0).then(|| Unchecked {
                part: part.to_owned(),
                reason: format!("a pattern took too long and was left unchecked, {count} times"),
            })
        })
    }

    /// Returns the version of the definition for the record: a counter and the beginning of a hash.
    pub(crate) fn schema_version(&self) -> &str {
        self.schema_version.get_or_init(|| {
            let short = self.hash.get(..12).unwrap_or(&self.hash);
            format!("{}-{short}", self.version)
        })
    }

    /// Returns what the tool says of itself, which grants believe of trusted servers only. fault L5
    pub(crate) fn hint(&self) -> ReadOnlyHint {
        match self.says_read_only && !self.is_unapproved.load(Ordering::Relaxed) {
            true => ReadOnlyHint::ReadOnly,
            false => ReadOnlyHint::Writes,
        }
    }

    /// Notes whether this version is offered though nobody approved it: what it says of itself does not
    /// count then.
    pub(crate) fn set_unapproved(&self, is_unapproved: bool) {
        self.is_unapproved.store(is_unapproved, Ordering::Relaxed);
    }

    /// Returns whether the tool declares a structured result.
    pub(crate) fn has_output(&self) -> bool {
        self.has_output
    }

    /// Checks arguments; absent ones count as an empty object.
    pub(crate) async fn check_arguments(
        self: &Arc<Self>,
        value: Option<Raw<'_>>,
        permits: &Permits,
    ) -> Result<(), SchemaMismatch> {
        let schema = self.compiled(Self::input, permits).await?;
        let value = value.unwrap_or(Raw::EMPTY_OBJECT);
        schema.check(value, permits).await
    }

    /// Returns what is wrong with arguments; nothing if that could not be checked now.
    pub(crate) async fn issues(
        self: &Arc<Self>,
        value: Raw<'_>,
        permits: &Permits,
    ) -> Option<Vec<Issue>> {
        match self.check_arguments(Some(value), permits).await {
            Ok(()) => Some(Vec::new()),
            Err(SchemaMismatch::Issues(issues)) => Some(issues),
            Err(SchemaMismatch::Busy) => None,
        }
    }

    /// Checks a structured result.
    pub(crate) async fn check_result(
        self: &Arc<Self>,
        value: Raw<'_>,
        permits: &Permits,
    ) -> Result<(), SchemaMismatch> {
        let schema = self.compiled(Self::output, permits).await?;
        schema.check(value, permits).await
    }

    /// Returns one of the tool's schemas; one that was not used before, and is long or has
    /// patterns, is compiled on a blocking thread.
    async fn compiled(
        self: &Arc<Self>,
        which: fn(&Self, compile: bool) -> Option<&Known>,
        permits: &Permits,
    ) -> Result<&Arc<Schema>, SchemaMismatch> {
        if which(self, false).is_none() && which(self, self.is_compiled_here()).is_none() {
            let tool = Arc::clone(self);
            let compile = move |_until| which(&tool, true).is_some();
            permits.run(compile).await?;
        }
        let schema =
            which(self, false).ok_or_else(|| SchemaMismatch::Issues(vec![too_costly()]))?;
        usable(schema).map_err(SchemaMismatch::Issues)
    }

    /// Returns whether compiling the schemas is fast. A keyword may be written with escapes.
    fn is_compiled_here(&self) -> bool {
        let text = self.definition.text();
        text.len() <= COMPILED_HERE && !text.contains("pattern") && !text.contains("\\u")
    }

    fn input(&self, compile: bool) -> Option<&Known> {
        let init = || Schema::of_arguments(self.member("inputSchema")).map(Arc::new);
        known(&self.input, compile, init)
    }

    fn output(&self, compile: bool) -> Option<&Known> {
        let init = || Ok(Arc::new(Schema::of_result(self.member("outputSchema"))));
        known(&self.output, compile, init)
    }

    /// Returns the headers that mirror a call's arguments.
    pub(crate) fn mirrored(&self, arguments: Option<Raw<'_>>) -> Vec<(Box<str>, Box<str>)> {
        let arguments = arguments.unwrap_or(Raw::EMPTY_OBJECT);
        mirrored(self.member("inputSchema"), arguments)
    }

    fn member(&self, name: &str) -> Raw<'_> {
        let member = self.definition.as_raw().get(name);
        member.unwrap_or(Raw::EMPTY_OBJECT)
    }
}

/// Returns the compiled schema, or compiles it now if requested.
fn known(cell: &Compiled, compile: bool, init: impl FnOnce() -> Known) -> Option<&Known> {
    if compile {
        Some(cell.get_or_init(init))
    } else {
        cell.get()
    }
}

/// A prompt, a resource or a resource template.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Its identifier: the name of a prompt, the URI of a resource, a template.
    pub(crate) name: Arc<str>,
    /// Its definition on one line, otherwise as it was received.
    pub(crate) definition: RawBuf,
    /// The SHA-256 of the definition in its canonical form.
    pub(crate) hash: String,
    /// Increases when the hash changes.
    pub(crate) version: u32,
}

impl Item {
    /// Checks a listed definition with this hash.
    pub(crate) fn admit(
        kind: WireList,
        raw: Raw<'_>,
        hash: String,
        longest: usize,
    ) -> Result<Self, String> {
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
        let definition = shown(tidy(raw));
        Ok(Self {
            name: Arc::from(name.as_ref()),
            definition: match kind {
                WireList::Resources | WireList::ResourceTemplates => with_clean_name(definition),
                WireList::Tools | WireList::Prompts => definition,
            },
            hash,
            version: 0,
        })
    }

    /// Restores a stored definition that was checked before.
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

/// Returns the name of a definition, as far as it has one, in printable form.
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
    // Fault L4: a name must not contain invisible characters.
    if name.chars().any(is_invisible) {
        return Err("its name contains invisible characters".to_owned());
    }
    Ok(())
}

/// The declared type of an arguments schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputKind {
    Object,
    /// None, or an object among others; arguments are objects anyway.
    Unspecified,
    Other,
}

fn kind_of_input(schema: Raw<'_>) -> InputKind {
    let Some(kind) = schema.get("type").filter(|kind| !kind.is_null()) else {
        return InputKind::Unspecified;
    };
    if kind.is_string("object") {
        return InputKind::Object;
    }
    let kinds = kind.deserialize::<Vec<serde_json::Value>>();
    if kinds.is_ok_and(|kinds| kinds.iter().any(|kind| kind == "object")) {
        return InputKind::Unspecified;
    }
    InputKind::Other
}

/// Returns whether clients would refuse the whole list because of this optional member.
fn is_odd(member: &str, value: Raw<'_>) -> bool {
    match member {
        "title" | "description" => value.string().is_none(),
        "annotations" | "execution" | "_meta" | "outputSchema" => !value.is_object(),
        "icons" => !value.text().starts_with('['),
        _ => false,
    }
}

/// Puts a tool's definition on one line, without parts for which clients would refuse the whole
/// list: optional members of the wrong type are removed, and the type of the arguments is added.
fn tidy_tool(view: &ToolDef<'_>) -> RawBuf {
    const OPTIONAL: [&str; 7] = [
        "title",
        "description",
        "annotations",
        "execution",
        "_meta",
        "outputSchema",
        "icons",
    ];
    const HINTS: [&str; 4] = [
        "readOnlyHint",
        "destructiveHint",
        "idempotentHint",
        "openWorldHint",
    ];
    let mut edit = Edit::new(view.raw);
    for member in view.raw.members() {
        if let Some(key) = OPTIONAL.into_iter().find(|key| member.is(key))
            && is_odd(key, member.value)
        {
            edit.remove(key);
        }
    }
    if let Some(annotations) = view.annotations {
        let mut hints = Edit::new(annotations);
        for hint in annotations.members() {
            let key = HINTS.into_iter().find(|key| hint.is(key));
            let is_boolean = hint.value.kind() == RawKind::Boolean;
            match key {
                Some(key) if !is_boolean => {
                    hints.remove(key);
                }
                None if hint.is("title") && hint.value.string().is_none() => {
                    hints.remove("title");
                }
                Some(_) | None => {}
            }
        }
        if !hints.is_empty() {
            edit.set_buf("annotations", hints.to_buf());
        }
    }
    if kind_of_input(view.input_schema) == InputKind::Unspecified {
        let mut schema = Edit::new(view.input_schema);
        schema.set_buf("type", RawBuf::string("object"));
        edit.set_buf("inputSchema", schema.to_buf());
    }
    tidy(edit.to_buf().as_raw())
}

/// Takes what nobody sees out of the texts of a definition (fault L2); its hash has it.
fn shown(definition: RawBuf) -> RawBuf {
    match clean_texts(definition.text()) {
        Some((clean, _)) => Raw::known(&clean).to_buf(),
        None => definition,
    }
}

/// The same with the name of a resource, which is for display: the URI identifies it.
fn with_clean_name(definition: RawBuf) -> RawBuf {
    let raw = definition.as_raw();
    let name = raw.get("name").and_then(Raw::string);
    let Some((clean, _)) = name.and_then(|name| clean(&name)) else {
        return definition;
    };
    let mut edit = Edit::new(raw);
    edit.set_buf("name", RawBuf::string(&clean));
    edit.to_buf()
}

/// Puts a definition on one line and removes optional members that are `null`, for which clients
/// would refuse the whole list, and what its server says in our name; everything else stays byte for
/// byte.
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
    if let Some(own) = raw.get("_meta") {
        meta::remove_ours(&mut edit, own);
    }
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

#[cfg(test)]
mod tests;
