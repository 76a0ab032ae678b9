//! Commands that work on any CORBA name server.

use std::io;
use std::time::Duration;

use corelane::{FailureDetail, ObjectRef, Orb, Reference, SystemException, SystemExceptionKind as Kind};
use corelane_services::naming::cos_naming::naming_context::{
    BindError, BindNewContextError, CannotProceed, NotFound, NotFoundReason, RebindError,
};
use corelane_services::naming::cos_naming::{NameComponent, NamingContextRef};
use corelane_services::naming::name;
use corelane_wire::exception::minor;
use serde_json::json;

use super::output::Output;
use super::{NamingArguments, NamingCommand, import, prune, walk, watch};
use crate::input;
use crate::text::{excerpt, printable};

const DEFAULT_AT: &str = "corbaloc::1.2@127.0.0.1:2809/NameService";
const NIL: &str = "IOR:00000000000000010000000000000000";
const TIMEOUT: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_secs(1);
const PRUNE_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) fn run(action: NamingCommand, arguments: &NamingArguments, out: &mut Output<'_>) -> Result<(), String> {
    let builder = Orb::builder().call_timeout(arguments.timeout.unwrap_or(TIMEOUT));
    let builder = builder.max_connections_per_server(arguments.jobs);
    let orb = builder.build().map_err(|error| error.to_string())?;
    let at = arguments.at.as_deref().unwrap_or(DEFAULT_AT);
    let root =
        NamingContextRef::unchecked_narrow(&object_of_word(&orb, at)?.ok_or("the name server's reference is nil")?);
    let (text, other) = (arguments.words.first(), arguments.words.get(1));
    let name = text.map_or(Ok(Vec::new()), |text| parse_name(text))?;
    let bound = || other.map_or(Ok(None), |text| object_of_word(&orb, text));
    let context = || {
        let context = bound()?.ok_or("the context's reference is nil")?;
        Ok::<_, String>(NamingContextRef::unchecked_narrow(&context))
    };
    match action {
        NamingCommand::List => walk::list(&subcontext(&root, &name)?, out),
        NamingCommand::Tree => walk::tree(&subcontext(&root, &name)?, text.map_or("", String::as_str), out),
        NamingCommand::Watch => {
            let watch = watch::Watch { interval: arguments.interval.unwrap_or(INTERVAL), count: arguments.count };
            let context = subcontext(&root, &name)?;
            watch::watch(&context, text.map_or("", String::as_str), watch, out, &mut io::stderr())
        }
        NamingCommand::Prune => {
            let timeout = arguments.timeout.unwrap_or(PRUNE_TIMEOUT);
            let prune = prune::Prune { timeout, dry_run: arguments.dry_run, follow: arguments.follow };
            prune::prune(&subcontext(&root, &name)?, text.map_or("", String::as_str), prune, out)
        }
        NamingCommand::Import => {
            let from = object_of_word(&orb, arguments.from.as_deref().unwrap_or_default())?;
            let from = NamingContextRef::unchecked_narrow(&from.ok_or("the reference of --from is nil")?);
            let to = subcontext(&root, &name)?;
            let control = arguments.control.as_deref();
            let import = import::Import { jobs: arguments.jobs, replace: arguments.replace, control, root: &root };
            import::import(&orb, &from, &to, &name, import, out, &mut io::stderr())
        }
        NamingCommand::Bind => root.bind(&name, bound()?.as_ref()).map_err(bind_message),
        NamingCommand::Rebind => root.rebind(&name, bound()?.as_ref()).map_err(rebind_message),
        NamingCommand::BindContext => root.bind_context(&name, Some(&context()?)).map_err(bind_message),
        NamingCommand::RebindContext => root.rebind_context(&name, Some(&context()?)).map_err(rebind_message),
        NamingCommand::Unbind => root.unbind(&name).map_err(rebind_message),
        NamingCommand::New => {
            let made = root.bind_new_context(&name).map_err(bind_new_context_message)?;
            print_reference(made.as_ref().map(Reference::as_object), out)
        }
        NamingCommand::Resolve => {
            let found = root.resolve(&name).map_err(rebind_message)?;
            print_reference(found.as_ref(), out)
        }
    }
}

fn print_reference(reference: Option<&ObjectRef>, out: &mut Output<'_>) -> Result<(), String> {
    let text = reference.map_or_else(|| NIL.to_owned(), ObjectRef::to_string);
    out.last_line(|| text.clone(), || json!({ "reference": text }));
    Ok(())
}

fn parse_name(text: &str) -> Result<Vec<NameComponent>, String> {
    name::to_name(text).map_err(|name::InvalidName| {
        format!("`{}` is not a name: components are ID, ID.KIND or .KIND, with `/` between them", excerpt(text))
    })
}

pub(crate) fn object_of_word(orb: &Orb, word: &str) -> Result<Option<ObjectRef>, String> {
    object_of_reference(orb, &input::reference(word)?)
}

/// Returns the object of a reference; `None` for a nil reference. The error is a message for the
/// user.
pub(crate) fn object_of_reference(orb: &Orb, text: &str) -> Result<Option<ObjectRef>, String> {
    orb.string_to_object(text).map_err(|exception| match exception.detail() {
        // The ORB's explanation already contains the reference.
        Some(FailureDetail { message, .. }) if is_url_error(&exception) && !message.is_empty() => printable(message),
        _ => format!("`{}` cannot be used: {exception}", excerpt(text)),
    })
}

fn is_url_error(exception: &SystemException) -> bool {
    exception.kind() == Kind::BadParam && exception.minor() == minor::bad_param::URL_OTHER
}

fn subcontext(root: &NamingContextRef, name: &[NameComponent]) -> Result<NamingContextRef, String> {
    if name.is_empty() {
        return Ok(root.clone());
    }
    let object = root.resolve(name).map_err(rebind_message)?.ok_or("the name is bound to nil")?;
    let context = NamingContextRef::narrow(&object).map_err(|error| error.to_string())?;
    context.ok_or_else(|| format!("`{}` is bound to an object that is not a context", shown(name)))
}

fn shown(name: &[NameComponent]) -> String {
    printable(&walk::name_text(name))
}

fn not_found(exception: &NotFound) -> String {
    let rest = shown(&exception.rest_of_name);
    match exception.why {
        NotFoundReason::MissingNode => format!("not found: nothing is bound to the first component of `{rest}`"),
        NotFoundReason::NotContext => format!("not found: the first component of `{rest}` is bound to no context"),
        NotFoundReason::NotObject => format!("not found: `{rest}` is bound to a context, not to an object"),
    }
}

fn cannot_proceed(exception: &CannotProceed) -> String {
    let rest = shown(&exception.rest_of_name);
    let context = exception.cxt.as_ref().map_or_else(|| NIL.to_owned(), |context| context.as_object().to_string());
    format!("the server cannot proceed with `{rest}` in the context {context}, which it cannot reach")
}

const INVALID: &str = "the server says that the name is invalid";

pub(super) fn rebind_message(error: RebindError) -> String {
    match error {
        RebindError::NotFound(exception) => not_found(&exception),
        RebindError::CannotProceed(exception) => cannot_proceed(&exception),
        RebindError::InvalidName(_) => INVALID.to_owned(),
        RebindError::System(exception) => exception.to_string(),
    }
}

pub(super) fn bind_message(error: BindError) -> String {
    match error {
        BindError::NotFound(exception) => not_found(&exception),
        BindError::CannotProceed(exception) => cannot_proceed(&exception),
        BindError::InvalidName(_) => INVALID.to_owned(),
        BindError::AlreadyBound(_) => "the name is bound already".to_owned(),
        BindError::System(exception) => exception.to_string(),
    }
}

pub(super) fn bind_new_context_message(error: BindNewContextError) -> String {
    match error {
        BindNewContextError::NotFound(exception) => not_found(&exception),
        BindNewContextError::CannotProceed(exception) => cannot_proceed(&exception),
        BindNewContextError::InvalidName(_) => INVALID.to_owned(),
        BindNewContextError::AlreadyBound(_) => "the name is bound already".to_owned(),
        BindNewContextError::System(exception) => exception.to_string(),
    }
}
