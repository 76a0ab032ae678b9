//! What makes values of the types that come in.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use corelane_sys::lock::Scope;
use corelane_sys::published::Published;
use corelane_wire::{CdrError, Decoder};

use super::object::{Implementation, ValueInfo, ValueObject, ValueType};

/// Reads a value.
type Read = dyn Fn(&mut Decoder<'_>) -> Result<Box<dyn ValueObject>, CdrError> + Send + Sync;

/// How values of one type are made.
#[derive(Clone)]
pub(crate) struct Factory {
    pub(crate) info: &'static ValueInfo,
    read: Option<Arc<Read>>,
}

impl Factory {
    /// The one that every type has: state alone.
    pub(crate) fn plain(info: &'static ValueInfo) -> Self {
        Factory { info, read: None }
    }

    pub(crate) fn read(&self, d: &mut Decoder<'_>) -> Result<Box<dyn ValueObject>, CdrError> {
        match &self.read {
            Some(read) => read(d),
            None => (self.info.decode)(d),
        }
    }
}

/// The value types that are known by name, each with what makes its values.
///
/// A value whose type is just the one that the reader expects needs no entry, and becomes a state without operations. An
/// entry is for values of types that inherit from the expected one, and for values with operations.
/// [`Orb::value_factories`](crate::Orb::value_factories) has those of an ORB.
pub struct ValueFactories {
    known: Published<HashMap<&'static str, Factory>>,
    /// Types for which nothing makes values.
    #[cfg(feature = "any")]
    types: Published<HashMap<Box<str>, crate::TypeCode>>,
}

impl ValueFactories {
    /// Without entries.
    #[must_use]
    pub fn new() -> Self {
        ValueFactories {
            known: Published::new("value factories", Scope::Orb, HashMap::new()),
            #[cfg(feature = "any")]
            types: Published::new("value types", Scope::Orb, HashMap::new()),
        }
    }

    /// Lets values of a type come in whole where they are known by their TypeCodes alone, as in an `any` and in dynamic calls: without it,
    /// one whose type inherits from the one expected is cut down to that, or refused where it cannot be. For types of which the program
    /// has no generated code.
    #[cfg(feature = "any")]
    pub fn register_type(&self, type_code: &crate::TypeCode) {
        let mut types = (*self.types.load_full()).clone();
        types.insert(type_code.id().into(), type_code.clone());
        self.types.store(Arc::new(types));
    }

    /// The TypeCode of a type that is known by its repository id.
    #[cfg(feature = "any")]
    pub(crate) fn type_of(&self, repository_id: &[u8]) -> Option<crate::TypeCode> {
        let types = self.types.load();
        let known = || types.get(std::str::from_utf8(repository_id).ok()?).cloned();
        self.find(repository_id).map(|factory| (factory.info.type_code)()).or_else(known)
    }

    /// Lets values of the type `T` come in as states alone.
    pub fn register<T: ValueType>(&self) {
        self.add(Factory::plain(T::description()));
    }

    /// Lets `factory` make an implementation from the state of each value of the type `T` that comes in.
    pub fn register_with<T: ValueType>(&self, factory: impl Fn(T) -> Implementation<T> + Send + Sync + 'static) {
        self.register_custom(move |d: &mut Decoder<'_>| T::decode_state(d).map(&factory));
    }

    /// Lets `factory` read the state of each value of the type `T` that comes in: what belongs to a custom value type whose
    /// implementation writes something else than the state that is declared.
    pub fn register_custom<T: ValueType>(
        &self,
        factory: impl Fn(&mut Decoder<'_>) -> Result<Implementation<T>, CdrError> + Send + Sync + 'static,
    ) {
        let read = move |d: &mut Decoder<'_>| factory(d).map(|made| made.object);
        self.add(Factory { info: T::description(), read: Some(Arc::new(read)) });
    }

    /// Forgets the type `T`; false if it was not known.
    pub fn unregister<T: ValueType>(&self) -> bool {
        let mut known = (*self.known.load_full()).clone();
        let found = known.remove(T::REPOSITORY_ID).is_some();
        self.known.store(Arc::new(known));
        found
    }

    fn add(&self, factory: Factory) {
        let mut known = (*self.known.load_full()).clone();
        known.insert(factory.info.repository_id(), factory);
        self.known.store(Arc::new(known));
    }

    pub(crate) fn find(&self, repository_id: &[u8]) -> Option<Factory> {
        let known = self.known.load();
        if known.is_empty() {
            return None;
        }
        known.get(std::str::from_utf8(repository_id).ok()?).cloned()
    }
}

impl Default for ValueFactories {
    fn default() -> Self {
        ValueFactories::new()
    }
}

impl fmt::Debug for ValueFactories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.known.load().keys()).finish()
    }
}
