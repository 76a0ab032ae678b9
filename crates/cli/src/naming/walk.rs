//! Commands that traverse contexts: `list`, `tree`, `prune`.
//!
//! Bindings are fetched in batches, so that a context of any size takes little memory here and in
//! the server.

use std::io::Write;
use std::time::Duration;

use corelane::{ObjectRef, Phase, SystemException, SystemExceptionKind as Kind};
use corelane_services::naming::cos_naming::{Binding, BindingType, NameComponent, NamingContextRef};

use super::client::{of_rebind, shown};

/// Number of bindings that are requested at a time.
const BATCH: u32 = 500;
/// Maximum depth of nested contexts that are traversed.
const MAX_DEPTH: usize = 100;

#[derive(Clone, Copy, Debug)]
pub(super) struct Prune {
    pub(super) timeout: Duration,
    pub(super) dry_run: bool,
}

/// The reason why the bindings of a context were not read to the end.
enum ListError {
    /// The context cannot be listed.
    Context(SystemException),
    /// The iterator failed after the first batch. The server may have ended it; the context exists.
    Iterator(SystemException),
    Output(String),
}

impl From<ListError> for String {
    fn from(error: ListError) -> String {
        match error {
            ListError::Context(exception) => exception.to_string(),
            ListError::Iterator(exception) => format!("the list ended early: {exception}"),
            ListError::Output(reason) => reason,
        }
    }
}

/// Passes all bindings of a context to `visit` in batches, each sorted by name.
fn for_each_batch(
    context: &NamingContextRef,
    visit: &mut dyn FnMut(Vec<Binding>) -> Result<(), String>,
) -> Result<(), ListError> {
    let sorted = |mut bindings: Vec<Binding>| {
        bindings.sort_by_cached_key(|binding| shown(&binding.binding_name));
        bindings
    };
    let (bindings, iterator) = context.list(BATCH).map_err(ListError::Context)?;
    let mut visited = visit(sorted(bindings)).map_err(ListError::Output);
    let Some(iterator) = iterator else { return visited };
    let mut has_more = true;
    while has_more && visited.is_ok() {
        visited = iterator.next_n(BATCH).map_err(ListError::Iterator).and_then(|(is_filled, bindings)| {
            // Some servers return FALSE together with the last batch.
            has_more = is_filled && !bindings.is_empty();
            visit(sorted(bindings)).map_err(ListError::Output)
        });
    }
    // Ignore errors: the server has destroyed the iterator itself, or will.
    let _ = iterator.destroy();
    visited
}

fn line(binding: &Binding) -> String {
    let mark = if binding.binding_type == BindingType::Ncontext { "/" } else { "" };
    format!("{}{mark}", shown(&binding.binding_name))
}

fn write_line(out: &mut dyn Write, line: &str) -> Result<(), String> {
    writeln!(out, "{line}").map_err(|error| format!("cannot write: {error}"))
}

/// Prints the bindings of a context.
pub(super) fn list(context: &NamingContextRef, out: &mut dyn Write) -> Result<(), String> {
    let mut visit = |bindings: Vec<Binding>| bindings.iter().try_for_each(|binding| write_line(out, &line(binding)));
    for_each_batch(context, &mut visit).map_err(String::from)
}

/// Prints the bindings of a context and of all contexts below it.
pub(super) fn tree(context: &NamingContextRef, out: &mut dyn Write) -> Result<(), String> {
    let mut path = vec![context.as_object().clone()];
    tree_of(context, &mut path, out).map_err(String::from)
}

fn tree_of(context: &NamingContextRef, path: &mut Vec<ObjectRef>, out: &mut dyn Write) -> Result<(), ListError> {
    for_each_batch(context, &mut |bindings| {
        for binding in bindings {
            let indent = "  ".repeat(path.len() - 1);
            if binding.binding_type == BindingType::Nobject {
                write_line(out, &format!("{indent}{}", line(&binding)))?;
                continue;
            }
            let (object, remark) = below(context, &binding.binding_name, path);
            write_line(out, &format!("{indent}{}{remark}", line(&binding)))?;
            let Some(object) = object else { continue };
            path.push(object.clone());
            let outcome = tree_of(&NamingContextRef::unchecked_narrow(&object), path, out);
            path.pop();
            match outcome {
                Ok(()) => {}
                Err(ListError::Context(exception)) => {
                    write_line(out, &format!("{indent}  (cannot be listed: {exception})"))?
                }
                Err(ListError::Iterator(exception)) => {
                    write_line(out, &format!("{indent}  (the list ended early: {exception})"))?
                }
                Err(ListError::Output(reason)) => return Err(reason),
            }
        }
        Ok(())
    })
}

/// Returns the context to traverse that a name is bound to, else a remark that says why there is
/// none.
fn below(context: &NamingContextRef, name: &[NameComponent], path: &[ObjectRef]) -> (Option<ObjectRef>, String) {
    match context.resolve(name) {
        Ok(Some(object)) if path.iter().any(|above| above.is_equivalent(&object)) => {
            (None, " (a context above)".to_owned())
        }
        Ok(Some(_)) if path.len() >= MAX_DEPTH => (None, " (deeper than 100 contexts)".to_owned()),
        Ok(Some(object)) => (Some(object), String::new()),
        Ok(None) => (None, " (nil)".to_owned()),
        Err(error) => (None, format!(" ({})", of_rebind(error))),
    }
}

/// Unbinds names below a context whose objects do not exist or cannot be reached. `prefix` is the
/// context's own name.
pub(super) fn prune(context: &NamingContextRef, prefix: &str, prune: Prune, out: &mut dyn Write) -> Result<(), String> {
    let mut path = vec![context.as_object().clone()];
    prune_of(context, prefix, prune, &mut path, out).map_err(String::from)
}

fn prune_of(
    context: &NamingContextRef,
    prefix: &str,
    prune: Prune,
    path: &mut Vec<ObjectRef>,
    out: &mut dyn Write,
) -> Result<(), ListError> {
    let mut dead = Vec::new();
    let listed = for_each_batch(context, &mut |bindings| {
        for binding in bindings {
            let name = binding.binding_name;
            let whole = if prefix.is_empty() { shown(&name) } else { format!("{prefix}/{}", shown(&name)) };
            let (object, reason) = if binding.binding_type == BindingType::Nobject {
                let Some(object) = context.resolve(&name).ok().flatten() else { continue };
                let reason = death(&object.with_timeout(prune.timeout));
                (object, reason)
            } else {
                let Some(object) = below(context, &name, path).0 else { continue };
                path.push(object.clone());
                let child = NamingContextRef::unchecked_narrow(&object).with_timeout(prune.timeout);
                let outcome = prune_of(&child, &whole, prune, path, out);
                path.pop();
                let reason = match outcome {
                    Ok(()) => None,
                    Err(ListError::Output(reason)) => return Err(reason),
                    Err(ListError::Context(exception)) => death_of(&exception),
                    Err(ListError::Iterator(exception)) => {
                        write_line(out, &format!("{whole}: not checked to its end: {exception}"))?;
                        None
                    }
                };
                (object, reason)
            };
            dead.extend(reason.map(|reason| (name, whole, object, reason)));
        }
        Ok(())
    });
    if let Err(ListError::Output(reason)) = listed {
        return Err(ListError::Output(reason));
    }
    for (name, whole, object, reason) in dead {
        let outcome = if prune.dry_run { Ok(()) } else { unbind_from(context, &name, &object) };
        let line = match outcome {
            Ok(()) => format!("{whole}: {reason}"),
            Err(error) => format!("{whole}: {reason}; it stays bound: {error}"),
        };
        write_line(out, &line).map_err(ListError::Output)?;
    }
    listed
}

/// Unbinds a name that is still bound to `object`. During the check of other names its server may
/// have started again and bound it to another object.
fn unbind_from(context: &NamingContextRef, name: &[NameComponent], object: &ObjectRef) -> Result<(), String> {
    let found = context.resolve(name).map_err(of_rebind)?;
    if found.is_none_or(|found| found.ior() != object.ior()) {
        return Err("it has been bound again".to_owned());
    }
    context.unbind(name).map_err(of_rebind)
}

/// Returns why an object counts as dead, or `None` if it does not.
fn death(object: &ObjectRef) -> Option<String> {
    match object.non_existent() {
        Ok(true) => Some("does not exist".to_owned()),
        Ok(false) => None,
        Err(exception) => death_of(&exception),
    }
}

/// Returns why an exception means that an object is dead. A slow server, or one that answers
/// TRANSIENT, is alive.
fn death_of(exception: &SystemException) -> Option<String> {
    let has_failed_to_connect = exception.detail().is_some_and(|detail| detail.phase == Some(Phase::Connect));
    match exception.kind() {
        Kind::ObjectNotExist => Some("does not exist".to_owned()),
        Kind::Transient | Kind::CommFailure if has_failed_to_connect => {
            Some(format!("cannot be reached ({exception})"))
        }
        _ => None,
    }
}
