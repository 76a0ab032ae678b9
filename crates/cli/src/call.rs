//! `corelane call`: any operation of any object, from its IDL.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use corelane::dynamic::{Request, RequestError};
use corelane::{Any, Context, ObjectRef, Orb, Reference, TypeCode};
use corelane_idl::ast::Direction;
use corelane_idl::compile::{Compilation, Options};
use corelane_idl::model::{DefinitionId, Kind, Type};
use serde_json::{Map, Value as Json};

use crate::idl_types::{Types, compile};
use crate::{DONE, NOT_DONE, WRONG_USAGE, json};

/// What the command says when it is asked for help, or when it does not understand.
pub(crate) const USAGE: &str = "\
usage: corelane call [-I DIR]... [-D NAME[=VALUE]]... [--idl-4] [--interface NAME] [--timeout SECONDS]
                     [--context NAME=VALUE]... --idl FILE REFERENCE OPERATION [ARGUMENT]...

Calls an operation of the object that REFERENCE names (IOR:, corbaloc: or corbaname:). FILE says what the operation is; an
attribute is called as _get_NAME or _set_NAME. Arguments are the in and inout ones from left to right, in JSON; a word that is
no JSON is a string. What comes back is printed as one JSON object: `result`, and inout and out parameters by name.

  numbers, true, \"text\"             as they are; enumerators are strings; `fixed` too
  {\"x\": 1, \"y\": 2}                  structures; unions with their `discriminator` beside the member
  [1, 2]                            sequences and arrays
  [{\"key\": 1, \"value\": \"a\"}]        maps; bit masks and bit sets are one number
  \"IOR:...\", null                   references
  {\"type\": \"long\", \"value\": 1}      any; TypeCodes are names of types; valuetypes, where it is one that inherits
                                    from the one declared, or that one is abstract

  --idl FILE        where the interface is declared
  -I, -D, --idl-4   as for `corelane idl`
  --interface NAME  the interface, if the reference does not say it and several have the operation
  --timeout SECONDS give up after this time (30)
  --context NAME=VALUE
                    a property that the operation's `context` clause asks for

Exit status: 0 called, 1 not called, or an exception was raised, 2 wrong usage.
";

/// Arguments of the command.
#[derive(Debug, Default)]
struct Arguments {
    idl: Option<PathBuf>,
    options: Options,
    interface: Option<String>,
    timeout: Option<f64>,
    context: Context,
    words: Vec<String>,
}

/// Runs the command with the arguments behind `corelane call`.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let arguments = match parse(arguments) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            let _ = out.write_all(USAGE.as_bytes());
            return DONE;
        }
        Err(reason) => {
            let _ = write!(out, "error: {reason}\n\n{USAGE}");
            return WRONG_USAGE;
        }
    };
    let (status, text) = match call(arguments) {
        Ok(Ok(json)) => (DONE, json.to_string()),
        Ok(Err(exception)) => (NOT_DONE, exception.to_string()),
        Err(error) => (NOT_DONE, format!("error: {error}")),
    };
    let _ = writeln!(out, "{text}");
    status
}

fn parse(mut words: impl Iterator<Item = OsString>) -> Result<Option<Arguments>, String> {
    let mut parsed = Arguments::default();
    while let Some(argument) = words.next() {
        let word = argument.to_string_lossy().into_owned();
        // Behind reference and operation everything is an argument: numbers may be negative.
        if parsed.words.len() >= 2 {
            parsed.words.push(word);
            continue;
        }
        if parsed.options.take(&argument, &mut words)? {
            continue;
        }
        let mut value = || {
            let value = words.next().ok_or_else(|| format!("`{word}` needs a value"))?;
            Ok::<_, String>(value.to_string_lossy().into_owned())
        };
        match word.as_str() {
            "-h" | "--help" => return Ok(None),
            "--idl" => parsed.idl = Some(value()?.into()),
            "--interface" => parsed.interface = Some(value()?),
            "--timeout" => {
                let seconds = value()?.parse().ok().filter(|seconds| (0.001..=1e6).contains(seconds));
                parsed.timeout = Some(seconds.ok_or("a time-out is a number of seconds")?);
            }
            "--context" => {
                let property = value()?;
                let (name, value) = property.split_once('=').ok_or("a property is NAME=VALUE")?;
                let refused =
                    |_| format!("`{property}` is no property: NAME is a letter, then letters, digits, `_` and `.`");
                parsed.context = std::mem::take(&mut parsed.context).with(name, value).map_err(refused)?;
            }
            option if option.starts_with('-') => return Err(format!("there is no option `{option}`")),
            _ => parsed.words.push(word),
        }
    }
    match (&parsed.idl, parsed.words.len()) {
        (None, _) => Err("no IDL is given".to_owned()),
        (_, 0) => Err("no reference is given".to_owned()),
        (_, 1) => Err("no operation is given".to_owned()),
        _ => Ok(Some(parsed)),
    }
}

/// An operation as it is on the wire.
struct Signature {
    result: Option<Type>,
    parameters: Vec<(Direction, String, Type)>,
    raises: Vec<DefinitionId>,
    oneway: bool,
    /// The properties that it asks for; none if it has no such clause.
    context: Vec<String>,
}

/// What came back, or the user exception that was raised.
type Outcome = Result<Json, Json>;

fn call(arguments: Arguments) -> Result<Outcome, String> {
    let Arguments { idl, options, interface, timeout, context, words } = arguments;
    let compilation = compile(&idl.unwrap_or_default(), &options)?;
    let (Some(reference), Some(operation)) = (words.first(), words.get(1)) else {
        return Err("no operation is given".to_owned());
    };
    let orb = Orb::new().map_err(|error| error.to_string())?;
    let object = orb.string_to_object(reference).map_err(|error| error.to_string())?;
    let object = object.ok_or("the reference is nil")?;
    let object = object.with_timeout(Duration::from_secs_f64(timeout.unwrap_or(30.0)));
    let mut types = Types::new(&compilation);
    for type_code in types.of_values() {
        orb.value_factories().register_type(&type_code);
    }
    let signature = find(&compilation, &types, interface.as_deref(), object.type_id(), operation)?;
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
                shown.insert("result".to_owned(), json::of_any(&response.result));
            }
            let names = signature.parameters.iter().filter(|(direction, ..)| *direction != Direction::In);
            for ((_, name, _), value) in names.zip(&response.outputs) {
                shown.insert(name.clone(), json::of_any(value));
            }
            Ok(Ok(Json::Object(shown)))
        }
        Err(RequestError::User(exception)) => {
            let mut shown = Map::new();
            shown.insert("raised".to_owned(), Json::String(exception.type_code().id().to_owned()));
            shown.insert("members".to_owned(), json::of_any(&exception));
            Ok(Err(Json::Object(shown)))
        }
        Err(RequestError::System(exception)) => Err(exception.to_string()),
    }
}

/// The properties that go with the call; nothing where there is no place for any.
fn asked_for(operation: &str, signature: &Signature, given: Context) -> Result<Option<Context>, String> {
    let context = given.matching(&signature.context);
    if let Some((name, _)) = given.iter().find(|(name, _)| context.get(name).is_none()) {
        return Err(format!("`{operation}` asks for no property `{name}`"));
    }
    Ok((!signature.context.is_empty()).then_some(context))
}

fn request(
    object: &ObjectRef,
    operation: &str,
    signature: &Signature,
    words: &[String],
    types: &mut Types<'_>,
) -> Result<Request, String> {
    let inputs = signature.parameters.iter().filter(|(direction, ..)| *direction != Direction::Out).count();
    if inputs != words.len() {
        return Err(format!("`{operation}` takes {inputs} arguments, and {} are given", words.len()));
    }
    let mut words = words.iter();
    let mut request = object.request(operation);
    for (direction, name, ty) in &signature.parameters {
        let type_code = types.of(ty)?;
        if *direction == Direction::Out {
            request = request.output(type_code);
            continue;
        }
        let word = words.next().map(String::as_str).unwrap_or_default();
        let value = argument(word, &type_code, types).map_err(|error| format!("argument `{name}`: {error}"))?;
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

/// A word as a value: JSON, or text where it is no JSON or text is what the type wants.
fn argument(word: &str, type_code: &TypeCode, types: &mut Types<'_>) -> Result<Any, String> {
    let wants_text = matches!(
        type_code.resolved().kind(),
        corelane::Kind::String | corelane::Kind::WString | corelane::Kind::Char | corelane::Kind::WChar
    );
    let json = match serde_json::from_str(word) {
        Ok(Json::String(text)) => Json::String(text),
        Ok(json) if !wants_text => json,
        _ => Json::String(word.to_owned()),
    };
    json::to_any(&json, type_code, types)
}

/// The operation: of the interface that is named, or that the reference says, or the only one of that name in the file.
fn find(
    compilation: &Compilation,
    types: &Types<'_>,
    interface: Option<&str>,
    type_id: &str,
    operation: &str,
) -> Result<Signature, String> {
    let model = &compilation.model;
    let interfaces = || model.ids().filter(|id| matches!(model.get(*id).kind, Kind::Interface(_)));
    let wanted: Vec<DefinitionId> = match interface {
        Some(name) => types.named(name),
        None => interfaces().filter(|id| types.repository_id(*id) == type_id).collect(),
    };
    if let Some(name) = interface
        && wanted.is_empty()
    {
        return Err(format!("there is no interface `{name}`"));
    }
    let known = !wanted.is_empty();
    let wanted = if known { wanted } else { interfaces().collect() };
    let mut found: Vec<DefinitionId> = wanted
        .into_iter()
        .flat_map(|id| std::iter::once(id).chain(model.all_bases(id)))
        .filter_map(|id| declared(compilation, types, id, operation))
        .collect();
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [] if known => Err(format!("the interface has no operation `{operation}`")),
        [] => Err(format!("no interface of the file has an operation `{operation}`")),
        [one] => signature(compilation, *one, operation).ok_or_else(|| format!("`{operation}` cannot be called")),
        several => {
            let names: Vec<String> = several.iter().map(|id| types.scoped_name(*id)).collect();
            Err(format!("several interfaces have it ({}): say which with --interface", names.join(", ")))
        }
    }
}

/// What an interface itself declares under the wire's name of an operation.
fn declared(compilation: &Compilation, types: &Types<'_>, id: DefinitionId, operation: &str) -> Option<DefinitionId> {
    let Kind::Interface(interface) = &compilation.model.get(id).kind else { return None };
    let attribute = operation.strip_prefix("_get_").or_else(|| operation.strip_prefix("_set_"));
    interface.members.iter().copied().find(|member| match &compilation.model.get(*member).kind {
        Kind::Operation(_) => types.name(*member) == operation,
        Kind::Attribute(one) => {
            attribute == Some(types.name(*member)) && !(one.readonly && operation.starts_with("_set_"))
        }
        _ => false,
    })
}

fn signature(compilation: &Compilation, id: DefinitionId, operation: &str) -> Option<Signature> {
    match &compilation.model.get(id).kind {
        Kind::Operation(operation) => {
            let text = |name| compilation.symbols.text(name).to_owned();
            let parameters = operation.parameters.iter();
            Some(Signature {
                result: operation.result.clone(),
                parameters: parameters.map(|one| (one.direction, text(one.name), one.ty.clone())).collect(),
                raises: operation.raises.clone(),
                oneway: operation.oneway,
                context: operation.context.clone(),
            })
        }
        Kind::Attribute(attribute) if operation.starts_with("_set_") => Some(Signature {
            result: None,
            parameters: vec![(Direction::In, "value".to_owned(), attribute.ty.clone())],
            raises: attribute.set_raises.clone(),
            oneway: false,
            context: Vec::new(),
        }),
        Kind::Attribute(attribute) => Some(Signature {
            result: Some(attribute.ty.clone()),
            parameters: Vec::new(),
            raises: attribute.get_raises.clone(),
            oneway: false,
            context: Vec::new(),
        }),
        _ => None,
    }
}
