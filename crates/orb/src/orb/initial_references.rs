//! Initial references (CORBA 3.0.3, section 4.5), and references by name: `corbaloc:rir:` and
//! `corbaname:` (OMG Naming Service 1.3, section 2.5).

use std::collections::HashMap;
use std::sync::Arc;

use corelane_wire::exception::minor;
use corelane_wire::ior::{Corbaloc, Corbaname, ObjectUrl, UrlError, parse_object_name};
use corelane_wire::{Decoder, Limits};

use super::core::OrbCore;
use super::error::OrbError;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::invocation::{Operation, Reply};
use crate::object::{ObjectRef, read_reference};

/// Maximum number of initial references in a chain in which each has a `corbaloc:rir:` URL that
/// names the next.
const MAX_LINKS: u32 = 8;
/// Maximum number of name components in an error message.
const MAX_SHOWN: u32 = 64;

#[derive(Debug, Default)]
pub(crate) struct InitialReferences {
    by_name: HashMap<String, InitialReference>,
    default: Option<(TextSource, String)>,
}

/// The source of an initial reference's URL. A URL from the program's arguments overrides a URL
/// from the builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TextSource {
    Program,
    Arguments,
}

#[derive(Clone, Debug)]
enum InitialReference {
    Object(ObjectRef),
    Text(TextSource, String),
}

impl InitialReferences {
    /// Registers an object under a name. Returns false if the name is empty, or already registered
    /// for an object.
    pub(super) fn register(&mut self, name: &str, object: &ObjectRef) -> bool {
        let is_free = !name.is_empty() && !matches!(self.by_name.get(name), Some(InitialReference::Object(_)));
        if is_free {
            self.by_name.insert(name.to_owned(), InitialReference::Object(object.clone()));
        }
        is_free
    }

    /// Sets the URL of an initial reference. A later URL replaces an earlier one, but a URL that
    /// the program sets does not replace a URL from the command line.
    ///
    /// # Errors
    /// BAD_PARAM for an empty name, and for a text that is not a stringified reference.
    pub(super) fn set_text(&mut self, source: TextSource, name: String, text: String) -> Result<(), SystemException> {
        if name.is_empty() {
            return Err(bad_url(minor::bad_param::URL_OTHER, "an initial reference has no name".into()));
        }
        ObjectUrl::parse(&text, &Limits::DEFAULT).map_err(|error| invalid_text(&text, error))?;
        let comes_after = |old: &InitialReference| matches!(old, InitialReference::Text(other, _) if *other > source);
        if !self.by_name.get(&name).is_some_and(comes_after) {
            self.by_name.insert(name, InitialReference::Text(source, text));
        }
        Ok(())
    }

    /// Sets the default initial reference (`-ORBDefaultInitRef`). A name without a URL of its own
    /// resolves to this URL followed by `/` and the name. A default that the program sets does not
    /// replace one from the command line.
    ///
    /// # Errors
    /// BAD_PARAM if the text with `/` and a name appended is not a stringified reference.
    pub(super) fn set_default(&mut self, source: TextSource, text: String) -> Result<(), SystemException> {
        ObjectUrl::parse(&format!("{text}/X"), &Limits::DEFAULT).map_err(|error| invalid_text(&text, error))?;
        if self.default.as_ref().is_none_or(|(other, _)| *other <= source) {
            self.default = Some((source, text));
        }
        Ok(())
    }

    pub(super) fn take_objects(&mut self) -> Vec<ObjectRef> {
        let taken = std::mem::take(&mut self.by_name).into_values().filter_map(|reference| match reference {
            InitialReference::Object(object) => Some(object),
            InitialReference::Text(..) => None,
        });
        taken.collect()
    }

    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.by_name.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    fn find(&self, name: &str) -> Option<InitialReference> {
        let by_default = || {
            let (source, text) = self.default.as_ref()?;
            Some(InitialReference::Text(*source, format!("{text}/{name}")))
        };
        self.by_name.get(name).cloned().or_else(by_default)
    }
}

impl OrbCore {
    pub(super) fn string_to_object(&self, text: &str) -> Result<Option<ObjectRef>, SystemException> {
        self.text_to_object(text, MAX_LINKS)
    }

    pub(super) fn initial_reference(&self, name: &str) -> Result<ObjectRef, SystemException> {
        self.linked_reference(name, MAX_LINKS)
    }

    fn text_to_object(&self, text: &str, links: u32) -> Result<Option<ObjectRef>, SystemException> {
        let parsed = ObjectUrl::parse(text, &self.config().limits).map_err(|error| invalid_text(text, error))?;
        match parsed {
            ObjectUrl::Ior(ior) => Ok((!ior.is_nil()).then(|| ObjectRef::new(Arc::clone(self.client()), ior))),
            ObjectUrl::Corbaloc(url) => self.location(&url, links).map(Some),
            ObjectUrl::Corbaname(url) => self.resolve_name(text, &url, links),
            _ => Err(invalid_text(text, UrlError::BadScheme)),
        }
    }

    fn location(&self, url: &Corbaloc, links: u32) -> Result<ObjectRef, SystemException> {
        match url.initial_reference() {
            Some(name) => self.linked_reference(&String::from_utf8_lossy(name), links),
            None => Ok(ObjectRef::new(Arc::clone(self.client()), url.to_ior()?)),
        }
    }

    fn linked_reference(&self, name: &str, links: u32) -> Result<ObjectRef, SystemException> {
        let refused =
            |why: &str| bad_url(minor::bad_param::URL_OTHER, format!("the initial reference \"{name}\" {why}"));
        let Some(links) = links.checked_sub(1) else {
            return Err(refused("refers to itself, or to a chain of too many initial references"));
        };
        let found = self.initial_references().lock().find(name);
        match found.ok_or_else(|| refused("is not known to this ORB (OrbBuilder::initial_reference, -ORBInitRef)"))? {
            InitialReference::Object(object) => Ok(object),
            InitialReference::Text(_, text) => self.text_to_object(&text, links)?.ok_or_else(|| refused("is nil")),
        }
    }

    fn resolve_name(&self, text: &str, url: &Corbaname, links: u32) -> Result<Option<ObjectRef>, SystemException> {
        static RESOLVE: Operation = Operation::new("resolve");
        let context = self.location(&url.context, links)?;
        let Some(name) = &url.name else { return Ok(Some(context)) };
        let components = parse_object_name(name).ok_or_else(|| invalid_text(text, UrlError::BadSchemeSpecificPart))?;
        let mut reply = context.invoke_raising(&RESOLVE, &|encoder| {
            encoder.write_len(components.len())?;
            for (id, kind) in &components {
                encoder.write_str(id)?;
                encoder.write_str(kind)?;
            }
            Ok(())
        })?;
        match reply.exception_id() {
            None => reply.read(read_reference),
            Some(_) => Err(unresolved(text, &mut reply)),
        }
    }
}

#[cold]
fn unresolved(text: &str, reply: &mut Reply<'_>) -> SystemException {
    let id = reply.exception_id().unwrap_or_default().to_owned();
    let name = id.trim_start_matches("IDL:omg.org/CosNaming/NamingContext/").trim_end_matches(":1.0");
    let why = match name {
        "NotFound" => reply.read(read_not_found).unwrap_or_else(|_| "NotFound".to_owned()),
        "InvalidName" => "the name service refuses the name".to_owned(),
        "CannotProceed" => "the name service cannot proceed in a naming context of another server".to_owned(),
        _ => format!("the name service raised {}", crate::text::shown(id.as_bytes())),
    };
    bad_url(minor::bad_param::URL_OTHER, format!("\"{}\" is not resolved: {why}", excerpt(text)))
}

fn read_not_found(decoder: &mut Decoder<'_>) -> Result<String, corelane_wire::CdrError> {
    let reason = match decoder.read_u32()? {
        0 => "nothing is bound to the first part of",
        1 => "no naming context is bound to the first part of",
        _ => "a naming context, and no object, is bound to",
    };
    let count = decoder.read_u32()?.min(MAX_SHOWN);
    let mut rest = Vec::new();
    for _ in 0..count {
        let (id, kind) = (decoder.read_string()?, decoder.read_string()?);
        rest.push(if kind.is_empty() { id } else { format!("{id}.{kind}") });
    }
    Ok(format!("{reason} {}", crate::text::shown(rest.join("/").as_bytes())))
}

fn bad_url(minor: u32, why: String) -> SystemException {
    SystemException::new(Kind::BadParam, minor, Completion::No).with_message(why)
}

fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}

fn invalid_text(text: &str, error: UrlError) -> SystemException {
    SystemException::new(error.kind(), error.minor(), Completion::No)
        .with_message(format!("\"{}\": {error}", excerpt(text)))
}

pub(super) fn take_options(
    arguments: impl IntoIterator<Item = String>,
    initial: &mut InitialReferences,
) -> Result<Vec<String>, OrbError> {
    let mut rest = Vec::new();
    let mut arguments = arguments.into_iter();
    let bad =
        |why: String| OrbError::ClientSetup(SystemException::new(Kind::BadParam, 0, Completion::No).with_message(why));
    while let Some(argument) = arguments.next() {
        let Some(option) = argument.strip_prefix("-ORB") else {
            rest.push(argument);
            continue;
        };
        let mut value = || arguments.next().ok_or_else(|| bad(format!("{argument} lacks its value")));
        match option {
            "InitRef" => {
                let value = value()?;
                let (name, text) =
                    value.split_once('=').ok_or_else(|| bad(format!("{argument} {value}: not NAME=REFERENCE")))?;
                initial
                    .set_text(TextSource::Arguments, name.to_owned(), text.to_owned())
                    .map_err(OrbError::ClientSetup)?;
            }
            "DefaultInitRef" => initial.set_default(TextSource::Arguments, value()?).map_err(OrbError::ClientSetup)?,
            "id" => _ = value()?,
            _ => {
                return Err(bad(format!(
                    "{argument} is not an option of this ORB; its options are -ORBInitRef, -ORBDefaultInitRef and -ORBid"
                )));
            }
        }
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Orb;

    #[test]
    fn invalid_reference_text_yields_the_minor_of_the_specification() {
        let orb = Orb::new().unwrap();
        for (text, minor) in [("x", 7), ("corbaloc::h:x/K", 8), ("corbaloc:rir:,:h/K", 9), ("corbaloc::h/%zz", 10)] {
            let exception = orb.string_to_object(text).unwrap_err();
            assert_eq!((exception.kind(), exception.minor() & 0xfff), (Kind::BadParam, minor), "{text}: {exception}");
        }
    }

    #[test]
    fn registered_objects_override_arguments_and_arguments_override_the_program() {
        let orb = Orb::new().unwrap();
        let object = orb.string_to_object("corbaloc::h/K").unwrap().unwrap();
        let mut initial = InitialReferences::default();
        let text = |initial: &InitialReferences, name| match initial.find(name) {
            Some(InitialReference::Text(_, text)) => text,
            other => format!("{other:?}"),
        };
        for (source, host) in [(TextSource::Program, "a"), (TextSource::Arguments, "b"), (TextSource::Program, "c")] {
            initial.set_text(source, "N".into(), format!("corbaloc::{host}/N")).unwrap();
            initial.set_default(source, format!("corbaloc::{host}")).unwrap();
        }
        assert_eq!((text(&initial, "N"), text(&initial, "M")), ("corbaloc::b/N".into(), "corbaloc::b/M".into()));
        assert!(initial.register("N", &object) && !initial.register("N", &object) && !initial.register("", &object));
        assert!(matches!(initial.find("N"), Some(InitialReference::Object(_))));
        assert_eq!(initial.take_objects().len(), 1);
    }

    #[test]
    fn orb_options_are_taken_and_other_arguments_are_returned() {
        let mut initial = InitialReferences::default();
        let arguments =
            ["a", "-ORBInitRef", "N=corbaloc::h/N", "b", "-ORBDefaultInitRef", "corbaloc::g", "-ORBid", "x"];
        let rest = take_options(arguments.map(String::from), &mut initial).unwrap();
        assert_eq!((rest, initial.names()), (vec!["a".to_owned(), "b".to_owned()], vec!["N".to_owned()]));
        assert!(matches!(initial.find("M"), Some(InitialReference::Text(_, text)) if text == "corbaloc::g/M"));
        for wrong in [&["-ORBInitRef"][..], &["-ORBInitRef", "N"], &["-ORBInitRef", "N=x"], &["-ORBNone", "1"]] {
            let wrong = wrong.iter().map(|word| (*word).to_owned());
            assert!(take_options(wrong, &mut InitialReferences::default()).is_err());
        }
    }
}
