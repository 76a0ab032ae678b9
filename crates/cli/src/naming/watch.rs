//! The command `watch`: prints the changes of names below a context.
//!
//! Corelane's name servers report their changes. For other servers the command repeatedly reads all
//! names and compares them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::time::Duration;

use corelane::{ObjectRef, SystemExceptionKind as Kind};
use corelane_services::naming::corelane_naming::{Change, ChangeKind, WatchedContextRef};
use corelane_services::naming::cos_naming::{BindingType, NamingContextRef};

use super::walk::{ListError, ObjectMap, OwnServer, bound_context, for_each_batch, joined, write_line};

/// Maximum time in milliseconds for which the server waits for a change.
const PATIENCE_MS: u32 = 1_000;
/// Pause before the next call, after an answer without changes that came at once.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// Time between two readings of a server that reports no changes.
    pub(super) interval: Duration,
    /// Number of changes after which the command ends; `None` for no end.
    pub(super) count: Option<u64>,
}

/// Prints the changes below a context as they come. `prefix` is the context's own name.
pub(super) fn watch(
    context: &NamingContextRef,
    prefix: &str,
    watch: Watch,
    out: &mut dyn Write,
    said: &mut dyn Write,
) -> Result<(), String> {
    let mut printer = Printer { out, left: watch.count };
    let reporting = WatchedContextRef::narrow(context.as_object()).map_err(|error| error.to_string())?;
    match reporting {
        Some(reporting) => follow(&reporting, prefix, &mut printer, said),
        None => compare(context, prefix, watch.interval, &mut printer, said),
    }
}

struct Printer<'o> {
    out: &'o mut dyn Write,
    left: Option<u64>,
}

impl Printer<'_> {
    fn print(&mut self, kind: ChangeKind, name: &str, is_context: bool) -> Result<(), String> {
        if self.is_done() {
            return Ok(());
        }
        self.left = self.left.map(|left| left - 1);
        let word = match kind {
            ChangeKind::Bound => "bound",
            ChangeKind::Unbound => "unbound",
        };
        let mark = if is_context { "/" } else { "" };
        write_line(self.out, &format!("{word} {name}{mark}"))?;
        self.out.flush().map_err(|error| format!("cannot write: {error}"))
    }

    fn is_done(&self) -> bool {
        self.left == Some(0)
    }
}

/// The target of a name: true for a context, and a hash of the reference.
type WatchedBinding = (bool, u64);

fn entry(is_context: bool, object: Option<&ObjectRef>) -> WatchedBinding {
    let mut hasher = DefaultHasher::new();
    object.map(ObjectRef::ior).hash(&mut hasher);
    (is_context, hasher.finish())
}

/// Reads names below a context. Each context of the server is read once, under the first name that
/// leads to it. Contexts of other servers are not read.
struct Reader<'r> {
    server: &'r mut OwnServer,
    /// The contexts that were found, with their names.
    contexts: ObjectMap<String>,
    /// Receives each name below the context.
    visit: &'r mut dyn FnMut(String, WatchedBinding),
    /// True to resolve the names of objects, in order to get their references.
    resolves: bool,
}

impl Reader<'_> {
    fn read(&mut self, context: &NamingContextRef, prefix: &str, path: &mut Vec<ObjectRef>) -> Result<(), ListError> {
        self.contexts.insert(context.as_object().clone(), prefix.to_owned());
        let mut below = Vec::new();
        for_each_batch(context, &mut |bindings| {
            for binding in bindings {
                let name = joined(prefix, &binding.binding_name);
                if binding.binding_type == BindingType::Nobject {
                    // A name that another client has just unbound has no target.
                    let object =
                        if self.resolves { context.resolve(&binding.binding_name).ok().flatten() } else { None };
                    (self.visit)(name, entry(false, object.as_ref()));
                    continue;
                }
                let found = bound_context(context, &binding.binding_name, path).ok();
                (self.visit)(name.clone(), entry(true, found.as_ref()));
                below.extend(found.map(|object| (object, name)));
            }
            Ok(())
        })?;
        for (object, name) in below {
            if self.contexts.get(&object).is_none() && self.server.has(&object) {
                path.push(object.clone());
                let read = self.read(&NamingContextRef::unchecked_narrow(&object), &name, path);
                path.pop();
                match read {
                    // The context has been destroyed, and its name is still bound.
                    Err(ListError::Context(exception)) if exception.kind() == Kind::ObjectNotExist => {}
                    read => read?,
                }
            }
        }
        Ok(())
    }
}

/// Reads all names below a context in `server`. Returns its contexts with their names.
fn read(
    context: &NamingContextRef,
    prefix: &str,
    server: &mut OwnServer,
    resolves: bool,
    visit: &mut dyn FnMut(String, WatchedBinding),
) -> Result<ObjectMap<String>, String> {
    let mut reader = Reader { server, contexts: ObjectMap::default(), visit, resolves };
    reader.read(context, prefix, &mut vec![context.as_object().clone()])?;
    Ok(reader.contexts)
}

/// Prints the differences between one reading and the next.
fn compare(
    context: &NamingContextRef,
    prefix: &str,
    interval: Duration,
    printer: &mut Printer<'_>,
    said: &mut dyn Write,
) -> Result<(), String> {
    let mut server = OwnServer::new(context.as_object());
    let mut names = || {
        let mut names = BTreeMap::new();
        read(context, prefix, &mut server, true, &mut |name, entry| {
            names.insert(name, entry);
        })?;
        Ok::<_, String>(names)
    };
    let mut before = names()?;
    // Ignore errors: there may be no standard error.
    let _ = writeln!(said, "comparing all names every {} s: the server reports no changes", interval.as_secs_f64());
    while !printer.is_done() {
        std::thread::sleep(interval);
        let after = names()?;
        for (name, (is_context, _)) in before.iter().filter(|(name, _)| !after.contains_key(*name)) {
            printer.print(ChangeKind::Unbound, name, *is_context)?;
        }
        for (name, entry) in after.iter().filter(|(name, entry)| before.get(*name) != Some(entry)) {
            printer.print(ChangeKind::Bound, name, entry.0)?;
        }
        before = after;
    }
    Ok(())
}

/// Prints the changes that the server reports.
fn follow(
    reporting: &WatchedContextRef,
    prefix: &str,
    printer: &mut Printer<'_>,
    said: &mut dyn Write,
) -> Result<(), String> {
    let mut position = reporting.last_change().map_err(|error| error.to_string())?;
    let own = reporting.own_reference().map_err(|error| error.to_string())?;
    let context = &own.ok_or("the server returns a nil context")?;
    let mut server = OwnServer::new(context.as_object());
    let mut contexts = read_contexts(context, prefix, &mut server)?;
    // Ignore errors: there may be no standard error.
    let _ = writeln!(said, "watching: the server reports its changes");
    while !printer.is_done() {
        let asked = std::time::Instant::now();
        let (is_whole, changes, end) =
            reporting.changes_after(&position, PATIENCE_MS).map_err(|error| error.to_string())?;
        if !is_whole {
            let _ = writeln!(said, "some changes were not seen");
            contexts = read_contexts(context, prefix, &mut server)?;
        } else if changes.is_empty() && asked.elapsed() < PAUSE {
            // The server permits no further client to wait.
            std::thread::sleep(PAUSE);
        }
        for change in changes {
            if print(&change, &mut contexts, &mut server, printer)? {
                // The contexts below may have other names.
                contexts.extend(read_contexts(context, prefix, &mut server)?);
            }
        }
        position = end;
    }
    Ok(())
}

fn read_contexts(
    context: &NamingContextRef,
    prefix: &str,
    server: &mut OwnServer,
) -> Result<ObjectMap<String>, String> {
    read(context, prefix, server, false, &mut |_, _| {})
}

/// Prints a change if it is in one of the contexts, which the change may add to or reduce. Returns
/// true if it has removed contexts.
fn print(
    change: &Change,
    contexts: &mut ObjectMap<String>,
    server: &mut OwnServer,
    printer: &mut Printer<'_>,
) -> Result<bool, String> {
    let Some(parent) = &change.parent else { return Ok(false) };
    let Some(prefix) = contexts.get(parent.as_object()) else { return Ok(false) };
    let name = joined(prefix, std::slice::from_ref(&change.name));
    let is_context = change.binding_type == BindingType::Ncontext;
    printer.print(change.kind, &name, is_context)?;
    // The name may have been bound to a context. The names below that context are then gone too.
    let below = format!("{name}/");
    let has_removed = contexts.retain(|known| *known != name && !known.starts_with(&below));
    if let (true, Some(object)) = (is_context, &change.target)
        && contexts.get(object).is_none()
        && server.has(object)
    {
        let found = NamingContextRef::unchecked_narrow(object);
        match read_contexts(&found, &name, server) {
            Ok(more) => contexts.extend(more),
            // The context has already been destroyed.
            Err(_) => contexts.insert(object.clone(), name),
        }
    }
    Ok(has_removed)
}
