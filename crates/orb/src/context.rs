//! Contexts: properties that a client sends with a call if the operation's IDL has a clause
//! `context ("name", "prefix*")` (CORBA 3.0.3, sections 3.13.6 and 4.6).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use corelane_wire::exception::minor;
use corelane_wire::{CdrError, Decoder, Encoder};

use crate::exception::{Completion, SystemException, SystemExceptionKind};
use crate::upcall_stack;

/// A set of named properties that a client sends with calls, or that a servant received with a
/// call.
///
/// A reference with a context sends with each call the properties that the `context` clause of the
/// operation selects.
///
/// ```no_run
/// use corelane::Context;
/// # fn example(object: corelane::ObjectRef) -> Result<(), corelane::SystemException> {
/// let context = Context::new().with("user", "ann")?.with("site.name", "north")?;
/// let object = object.with_context(&context);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Context(Option<Arc<BTreeMap<String, String>>>);

impl Context {
    /// Makes a context without properties.
    #[must_use]
    pub const fn new() -> Context {
        Context(None)
    }

    /// Returns the properties of the call that the calling thread serves; an empty context if there
    /// are none.
    #[must_use]
    pub fn of_current_call() -> Context {
        let depth = upcall_stack::depth();
        CALL_CONTEXTS.with_borrow(|contexts| match contexts.last() {
            Some((of, context)) if *of == depth => context.clone(),
            _ => Context::new(),
        })
    }

    /// Adds a property, or replaces the property of the same name.
    ///
    /// # Errors
    /// BAD_PARAM 35 for an invalid name; a name is a letter, then letters, digits, `_` and `.`.
    /// BAD_PARAM for a NUL in the value.
    pub fn with(mut self, name: &str, value: &str) -> Result<Context, SystemException> {
        let letter = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_' || octet == b'.';
        if !name.starts_with(|first: char| first.is_ascii_alphabetic()) || !name.bytes().all(letter) {
            return Err(SystemException::new(
                SystemExceptionKind::BadParam,
                minor::bad_param::CONTEXT_PROPERTY_NAME,
                Completion::No,
            ));
        }
        if value.contains('\0') {
            return Err(CdrError::NulInString.into());
        }
        let properties = self.0.get_or_insert_default();
        Arc::make_mut(properties).insert(name.to_owned(), value.to_owned());
        Ok(self)
    }

    /// Returns the value of a property, or `None` if there is no such property.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.as_ref()?.get(name).map(String::as_str)
    }

    /// Returns the properties and their values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|all| all.iter()).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns true if there are no properties.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|all| all.is_empty())
    }

    /// Returns the properties that the patterns of an IDL clause select. A pattern is a name, or a
    /// prefix followed by `*`.
    #[must_use]
    pub fn matching_properties(&self, patterns: &[impl AsRef<str>]) -> Context {
        let Some(all) = &self.0 else { return Context::new() };
        let wanted = |name: &str| {
            patterns.iter().map(AsRef::as_ref).any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == pattern,
            })
        };
        let matching: BTreeMap<_, _> =
            all.iter().filter(|(name, _)| wanted(name)).map(|(name, value)| (name.clone(), value.clone())).collect();
        if matching.is_empty() { Context::new() } else { Context(Some(Arc::new(matching))) }
    }

    /// For generated code: writes the properties after the arguments.
    ///
    /// # Errors
    /// For values that the connection's code set cannot encode.
    #[doc(hidden)]
    pub fn write(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_len(self.iter().count() * 2)?;
        self.iter().try_for_each(|(name, value)| {
            e.write_str(name)?;
            e.write_str(value)
        })
    }

    /// Reads the context of a request. The context is empty if the request ends after the
    /// arguments, as requests of ORBs without contexts do.
    pub(crate) fn read(d: &mut Decoder<'_>) -> Result<Context, CdrError> {
        if d.remaining_len() == 0 {
            return Ok(Context::new());
        }
        let len = d.read_len(4)?;
        if !len.is_multiple_of(2) {
            return Err(CdrError::Truncated);
        }
        d.charge_elements::<(String, String)>(len / 2)?;
        let mut properties = BTreeMap::new();
        for _ in 0..len / 2 {
            properties.insert(d.read_string()?, d.read_string()?);
        }
        Ok(if properties.is_empty() { Context::new() } else { Context(Some(Arc::new(properties))) })
    }

    /// For generated code: reads the properties after the arguments. [`Context::of_current_call`]
    /// returns them until the guard is dropped.
    ///
    /// # Errors
    /// If the bytes are not a list of properties.
    #[doc(hidden)]
    pub fn begin(d: &mut Decoder<'_>) -> Result<ContextScope, CdrError> {
        Ok(Context::read(d)?.enter())
    }

    /// For generated code: makes [`Context::of_current_call`] return the properties until the guard
    /// is dropped.
    #[doc(hidden)]
    #[must_use]
    pub fn enter(&self) -> ContextScope {
        CALL_CONTEXTS.with_borrow_mut(|contexts| contexts.push((upcall_stack::depth(), self.clone())));
        ContextScope(())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

thread_local! {
    /// The contexts of running calls, each with the depth of its upcall on the thread's upcall
    /// stack.
    static CALL_CONTEXTS: RefCell<Vec<(usize, Context)>> = const { RefCell::new(Vec::new()) };
}

#[doc(hidden)]
#[derive(Debug)]
pub struct ContextScope(());

impl Drop for ContextScope {
    fn drop(&mut self) {
        CALL_CONTEXTS.with_borrow_mut(Vec::pop);
    }
}

#[cfg(test)]
mod tests {
    use corelane_wire::Endian;

    use super::*;

    fn some() -> Context {
        let all = [("user", "ann"), ("site.name", "north"), ("site.zone", ""), ("sitemap", "x")];
        all.into_iter().fold(Context::new(), |context, (name, value)| context.with(name, value).unwrap())
    }

    #[test]
    fn context_clause_matches_names_and_prefixes() {
        let matching =
            |patterns: &[&str]| some().matching_properties(patterns).iter().map(|(name, _)| name.to_owned()).collect();
        let names: Vec<String> = matching(&["user", "site.*"]);
        assert_eq!(names, ["site.name", "site.zone", "user"]);
        let names: Vec<String> = matching(&["site", "use", "other*"]);
        assert_eq!(names, [""; 0]);
        assert_eq!(some().matching_properties(&["s*", "u*"]), some());
        assert!(Context::new().matching_properties(&["s*"]).is_empty());
    }

    #[test]
    fn invalid_names_and_values_are_refused() {
        for name in ["", "1a", "_a", "a b", "a*", "\u{e9}"] {
            let refused = Context::new().with(name, "x").unwrap_err();
            assert_eq!((refused.kind(), refused.minor()), (SystemExceptionKind::BadParam, 0x4f4d_0023), "{name}");
        }
        assert_eq!(Context::new().with("a", "b\0").unwrap_err().kind(), SystemExceptionKind::BadParam);
        let twice = Context::new().with("a", "1").unwrap().with("a", "2").unwrap();
        assert_eq!((twice.get("a"), twice.iter().count()), (Some("2"), 1));
    }

    fn read(octets: &[u8]) -> Result<Context, CdrError> {
        Context::read(&mut Decoder::new(octets, Endian::Big))
    }

    #[test]
    fn encoded_context_alternates_names_and_values() {
        let mut e = Encoder::new();
        e.set_endian(Endian::Big);
        Context::new().with("b", "two").unwrap().with("a", "1").unwrap().write(&mut e).unwrap();
        let octets = e.to_vec();
        let expected = b"\0\0\0\x04\0\0\0\x02a\0\0\0\0\0\0\x021\0\0\0\0\0\0\x02b\0\0\0\0\0\0\x04two\0";
        assert_eq!(octets, expected);
        assert_eq!(read(&octets).unwrap().get("b"), Some("two"));
        assert_eq!(read(&[]), Ok(Context::new()));
        assert_eq!(read(&[0; 4]), Ok(Context::new()));
    }

    #[test]
    fn malformed_context_is_refused() {
        assert_eq!(read(&[0, 0]), Err(CdrError::Truncated));
        assert_eq!(read(&[0, 0, 0, 1, 0, 0, 0, 1, 0]), Err(CdrError::Truncated));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 1, 0]), Err(CdrError::CountExceedsInput));
        assert_eq!(read(&[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]), Err(CdrError::Truncated));
    }

    #[test]
    fn call_context_lasts_until_the_scope_ends() {
        assert!(Context::of_current_call().is_empty());
        let outer = some().enter();
        {
            let _inner = Context::new().with("a", "1").unwrap().enter();
            assert_eq!(Context::of_current_call().get("a"), Some("1"));
        }
        assert_eq!(Context::of_current_call(), some());
        drop(outer);
        assert!(Context::of_current_call().is_empty());
    }
}
