//! The command `corelane call`, which calls any operation of any object with the types of its IDL.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ArgMatches, Command};
use corelane::dynamic::{DynamicRequest, RequestError};
use corelane::{Any, Context, ObjectRef, Orb, TypeCode};
use corelane_idl::ast::Direction;
use corelane_idl::compile::CompileOptions;
use corelane_wire::Limits;
use serde_json::{Map, Value as Json, json};

use crate::arguments::{self, ArgumentRefusal, INVALID_TIMEOUT, MIN_TIMEOUT_S, flag, option, positional};
use crate::idl_types::{Types, compile};
use crate::operations::{self, ListedInterface, Signature};
use crate::text::{excerpt, json_line, json_text};
use crate::{DONE, NOT_DONE, json, naming};

pub(crate) const USAGE: &str = "\
usage: corelane call [-I DIR]... [-D NAME[=VALUE]]... [--idl-4] [--interface NAME] [--timeout SECONDS]
                     [--context NAME=VALUE]... --idl FILE REFERENCE OPERATION [ARGUMENT]...
       corelane call --list [--json] [-I DIR]... [-D NAME[=VALUE]]... [--idl-4] [--interface NAME] --idl FILE [REFERENCE]

Calls an operation of the object that REFERENCE names (IOR:, corbaloc: or corbaname:). FILE declares the operation; an
attribute is called as _get_NAME or _set_NAME. ARGUMENTs are the in and inout parameters from left to right, in JSON; a word
that is not JSON is a string. The results are printed as one JSON object: `result`, and inout and out parameters by name.
With --list no operation is called: those of the reference's interface are printed, or of every interface in FILE.

  numbers, true, \"text\"             as they are; enumerators are strings; `fixed` too
  {\"x\": 1, \"y\": 2}                  structures; unions with their `discriminator` beside the member
  [1, 2]                            sequences and arrays
  \"00ff10\", [0, 255, 16]            octet sequences and arrays: hexadecimal digits, or numbers
  [{\"key\": 1, \"value\": \"a\"}]        maps; bit masks and bit sets are one number
  \"IOR:...\", null                   references
  {\"type\": \"long\", \"value\": 1}      any; TypeCodes are names of types; valuetypes, if the type inherits from the
                                    declared one, or the declared one is abstract

  @FILE             the content of FILE is the argument: JSON; for a string also plain text without its last line end;
                    for octet sequences and arrays the octets themselves
  -                 like @FILE, but from the standard input
  '\"@text\"'         a string that begins with @, or is -, goes in quotation marks

  --idl FILE        the file that declares the interface
  -I, -D, --idl-4   as for `corelane idl`
  --interface NAME  the interface, if the reference does not name it and several have the operation
  --timeout SECONDS give up after this time (30)
  --list            print the operations and call none
  --json            with --list: print JSON; results are JSON in any case
  --context NAME=VALUE
                    a property in the operation's `context` clause

Exit status: 0 called, 1 not called, or an exception was raised, 2 wrong usage.
";

/// Maximum length in bytes of an argument from a file: the default maximum of a message.
const MAX_ARGUMENT: u64 = Limits::DEFAULT.max_message_size as u64;

#[derive(Debug, Default)]
struct CallArguments {
    idl: PathBuf,
    options: CompileOptions,
    interface: Option<String>,
    timeout: Option<Duration>,
    context: Context,
    list: bool,
    is_json: bool,
    words: Vec<String>,
}

pub(crate) fn command() -> Command {
    let command = arguments::command("call", USAGE)
        .args(arguments::idl_options())
        .args([option("interface", "NAME"), option("timeout", "SECONDS"), flag("list"), flag("json")])
        .args([option("context", "NAME=VALUE").action(ArgAction::Append), option("idl", "FILE")])
        .args([positional("REFERENCE"), positional("OPERATION"), arguments::positionals("ARGUMENT")]);
    arguments::with_descriptions(command, USAGE)
}

pub(crate) fn run(arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let arguments = match parse(arguments) {
        Ok(arguments) => arguments,
        Err(reason) => return arguments::print_refusal(reason, USAGE, out),
    };
    if arguments.list {
        let (status, text) = match list(&arguments) {
            Ok(text) => (DONE, text),
            Err(error) if arguments.is_json => (NOT_DONE, json_text(&json!({ "schema": 1, "error": error }))),
            Err(error) => (NOT_DONE, format!("error: {error}\n")),
        };
        let _ = out.write_all(text.as_bytes());
        return status;
    }
    let (status, text) = match call(arguments) {
        Ok(Ok(json)) => (DONE, json_line(&json)),
        Ok(Err(exception)) => (NOT_DONE, json_line(&exception)),
        Err(error) => (NOT_DONE, format!("error: {error}\n")),
    };
    let _ = out.write_all(text.as_bytes());
    status
}

/// Parses the words. The error is a message, or `None` if the user requests help.
fn parse(words: impl Iterator<Item = OsString>) -> Result<CallArguments, Option<String>> {
    let command = command();
    // Negative numbers start with `-`, so every word after the operation is an argument.
    let is_word = |word: &str, count| count >= 2 || !word.starts_with('-') || word == "-";
    let words = arguments::move_positionals_last(&command, words, is_word);
    let parsed = arguments::parse(command, words).map_err(ArgumentRefusal::reason)?;
    refine(&parsed).map_err(Some)
}

fn refine(parsed: &ArgMatches) -> Result<CallArguments, String> {
    let words = ["REFERENCE", "OPERATION", "ARGUMENT"].map(|name| arguments::texts(parsed, name)).concat();
    let timeout =
        arguments::text(parsed, "timeout").map(|text| arguments::seconds(&text, MIN_TIMEOUT_S, INVALID_TIMEOUT));
    let mut context = Context::default();
    for property in arguments::texts(parsed, "context") {
        let (name, value) = property.split_once('=').ok_or("a property is NAME=VALUE")?;
        let refused = |_| {
            let property = excerpt(&property);
            format!("`{property}` is not a property: NAME is a letter, then letters, digits, `_` and `.`")
        };
        context = context.with(name, value).map_err(refused)?;
    }
    let (list, is_json) = (parsed.get_flag("list"), parsed.get_flag("json"));
    let idl = parsed.get_one::<OsString>("idl").ok_or("no IDL is given")?.into();
    match words.len() {
        0 | 1 if list => {}
        _ if list => return Err("--list takes no operation and no arguments".to_owned()),
        0 => return Err("no reference is given".to_owned()),
        1 => return Err("no operation is given: --list shows the operations".to_owned()),
        _ => {}
    }
    let (options, interface) = (arguments::idl_options_of(parsed), arguments::text(parsed, "interface"));
    Ok(CallArguments { idl, options, interface, timeout: timeout.transpose()?, context, list, is_json, words })
}

type CallOutcome = Result<Json, Json>;

fn list(arguments: &CallArguments) -> Result<String, String> {
    let compilation = compile(&arguments.idl, &arguments.options)?;
    let type_id = match arguments.words.first() {
        None => String::new(),
        Some(reference) => {
            let orb = Orb::new().map_err(|error| error.to_string())?;
            let object = naming::object_of_word(&orb, reference)?;
            object.map(|object| object.type_id().to_owned()).unwrap_or_default()
        }
    };
    let listed = operations::list(&compilation, arguments.interface.as_deref(), &type_id)?;
    if arguments.is_json {
        let interfaces: Vec<Json> = listed.iter().map(ListedInterface::to_json).collect();
        return Ok(json_text(&json!({ "schema": 1, "interfaces": interfaces })));
    }
    Ok(listed.iter().map(ListedInterface::to_text).collect())
}

fn call(arguments: CallArguments) -> Result<CallOutcome, String> {
    let CallArguments { idl, options, interface, timeout, context, words, .. } = arguments;
    let compilation = compile(&idl, &options)?;
    let (Some(reference), Some(operation)) = (words.first(), words.get(1)) else {
        return Err("no operation is given".to_owned());
    };
    let orb = Orb::new().map_err(|error| error.to_string())?;
    let object = naming::object_of_word(&orb, reference)?.ok_or("the reference is nil")?;
    let object = object.with_timeout(timeout.unwrap_or(Duration::from_secs(30)));
    let mut types = Types::new(&compilation);
    for type_code in types.of_values() {
        orb.value_factories().register_type(&type_code);
    }
    let signature = operations::find(&compilation, &types, interface.as_deref(), object.type_id(), operation)?;
    let context = asked_for(operation, &signature, context)?;
    let mut request = request(&object, operation, &signature, words.get(2..).unwrap_or_default(), &mut types)?;
    if let Some(context) = context {
        request = request.context(context);
    }
    if signature.oneway {
        request.send_oneway().map_err(|error| error.to_string())?;
        return Ok(Ok(Json::Object(Map::new())));
    }
    match request.invoke() {
        Ok(response) => {
            let mut shown = Map::new();
            if signature.result.is_some() {
                shown.insert("result".to_owned(), json::any_to_json(&response.result));
            }
            let names = signature.parameters.iter().filter(|(direction, ..)| *direction != Direction::In);
            for ((_, name, _), value) in names.zip(&response.outputs) {
                shown.insert(name.clone(), json::any_to_json(value));
            }
            Ok(Ok(Json::Object(shown)))
        }
        Err(RequestError::User(exception)) => {
            let mut shown = Map::new();
            shown.insert("raised".to_owned(), Json::String(exception.type_code().id().to_owned()));
            shown.insert("members".to_owned(), json::any_to_json(&exception));
            Ok(Err(Json::Object(shown)))
        }
        Err(RequestError::System(exception)) => Err(exception.to_string()),
    }
}

/// Returns the properties for the operation's `context` clause; `None` if the operation has no such
/// clause.
fn asked_for(operation: &str, signature: &Signature, given: Context) -> Result<Option<Context>, String> {
    let context = given.matching_properties(&signature.context);
    if let Some((name, _)) = given.iter().find(|(name, _)| context.get(name).is_none()) {
        return Err(format!("the `context` clause of `{operation}` has no property `{name}`"));
    }
    Ok((!signature.context.is_empty()).then_some(context))
}

fn request(
    object: &ObjectRef,
    operation: &str,
    signature: &Signature,
    words: &[String],
    types: &mut Types<'_>,
) -> Result<DynamicRequest, String> {
    let inputs = signature.parameters.iter().filter(|(direction, ..)| *direction != Direction::Out).count();
    if inputs != words.len() {
        let operation = excerpt(operation);
        return Err(format!("`{operation}` takes {inputs} arguments, and {} are given", words.len()));
    }
    let (mut words, mut sources) = (words.iter(), Sources::default());
    let mut request = object.request(operation);
    for (direction, name, ty) in &signature.parameters {
        let type_code = types.of(ty)?;
        if *direction == Direction::Out {
            request = request.output(type_code);
            continue;
        }
        let word = words.next().map(String::as_str).unwrap_or_default();
        let value =
            argument(word, &type_code, types, &mut sources).map_err(|error| format!("argument `{name}`: {error}"))?;
        request = if *direction == Direction::In { request.input(value) } else { request.inout(value) };
    }
    if let Some(result) = &signature.result {
        request = request.returns(types.of(result)?);
    }
    for exception in &signature.raises {
        request = request.raises(types.of_definition(*exception)?);
    }
    Ok(request)
}

#[derive(Default)]
struct Sources {
    standard_input_is_read: bool,
}

impl Sources {
    fn read(&mut self, word: &str) -> Result<Option<Vec<u8>>, String> {
        let mut octets = Vec::new();
        let (name, read) = if let Some(path) = word.strip_prefix('@') {
            let name = format!("`{}`", excerpt(path));
            let read = File::open(path).and_then(|file| file.take(MAX_ARGUMENT + 1).read_to_end(&mut octets));
            (name, read)
        } else if word == "-" {
            if std::mem::replace(&mut self.standard_input_is_read, true) {
                return Err("the standard input is one argument: a second one cannot be read from it".to_owned());
            }
            let read = io::stdin().lock().take(MAX_ARGUMENT + 1).read_to_end(&mut octets);
            ("the standard input".to_owned(), read)
        } else {
            return Ok(None);
        };
        match read {
            Err(error) => Err(format!("{name} cannot be read: {error}")),
            Ok(length) if length as u64 > MAX_ARGUMENT => Err(format!("{name} holds more than {MAX_ARGUMENT} octets")),
            Ok(_) => Ok(Some(octets)),
        }
    }
}

/// Converts a word, or the content of the file that it names, to an argument of this type. For a
/// sequence or an array of octets, the octets of a file are the argument. Any other word or file is
/// parsed as JSON, and stands for a JSON string if it is not JSON. A word or file for a string or
/// character stands for a JSON string unless it is one. So does a number for octets, because its
/// digits are hexadecimal.
fn argument(word: &str, type_code: &TypeCode, types: &mut Types<'_>, sources: &mut Sources) -> Result<Any, String> {
    let is_of_octets = json::is_of_octets(type_code);
    let contents = match sources.read(word)? {
        Some(octets) if is_of_octets => return json::octets_to_any(octets, type_code),
        Some(octets) => {
            Some(String::from_utf8(octets).map_err(|_| format!("`{}` holds no UTF-8 text", excerpt(word)))?)
        }
        None => None,
    };
    let word = match &contents {
        Some(text) => text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line)),
        None => word,
    };
    let wants_text = matches!(
        type_code.unaliased().kind(),
        corelane::TypeCodeKind::String
            | corelane::TypeCodeKind::WString
            | corelane::TypeCodeKind::Char
            | corelane::TypeCodeKind::WChar
    );
    let json = match serde_json::from_str(word) {
        Ok(Json::String(text)) => Json::String(text),
        Ok(Json::Number(_)) if is_of_octets => Json::String(word.to_owned()),
        Ok(json) if !wants_text => json,
        _ => Json::String(word.to_owned()),
    };
    json::to_any(&json, type_code, types)
}
