//! Factories for received values.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use corelane_sys::lock::LockScope;
use corelane_sys::rcu_cell::RcuCell;
use corelane_wire::{CdrError, Decoder};

use super::object::{ValueImplementation, ValueInfo, ValueObject, ValueType};

type Read = dyn Fn(&mut Decoder<'_>) -> Result<Box<dyn ValueObject>, CdrError> + Send + Sync;

#[derive(Clone)]
pub(crate) struct ValueFactory {
    pub(crate) info: &'static ValueInfo,
    read: Option<Arc<Read>>,
}

impl ValueFactory {
    pub(crate) fn plain(info: &'static ValueInfo) -> Self {
        ValueFactory { info, read: None }
    }

    pub(crate) fn read(&self, d: &mut Decoder<'_>) -> Result<Box<dyn ValueObject>, CdrError> {
        match &self.read {
            Some(read) => read(d),
            None => (self.info.decode)(d),
        }
    }
}

/// A table of value types by repository id, with their factories.
///
/// A type needs an entry if it inherits from the type that the reader expects, or if its values
/// have operations. A value of exactly the expected type needs no entry: it becomes a state without
/// operations. [`Orb::value_factories`](crate::Orb::value_factories) returns the table of an ORB.
pub struct ValueFactories {
    known: RcuCell<HashMap<&'static str, ValueFactory>>,
    #[cfg(feature = "any")]
    types: RcuCell<HashMap<Box<str>, crate::TypeCode>>,
}

impl ValueFactories {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        ValueFactories {
            known: RcuCell::new("value factories", LockScope::Orb, HashMap::new()),
            #[cfg(feature = "any")]
            types: RcuCell::new("value types", LockScope::Orb, HashMap::new()),
        }
    }

    /// Registers a type by its TypeCode, so that `any` and dynamic calls receive its values
    /// completely.
    #[cfg(feature = "any")]
    pub fn register_type(&self, type_code: &crate::TypeCode) {
        let mut types = (*self.types.load_full()).clone();
        types.insert(type_code.id().into(), type_code.clone());
        self.types.store(Arc::new(types));
    }

    #[cfg(feature = "any")]
    pub(crate) fn type_of(&self, repository_id: &[u8]) -> Option<crate::TypeCode> {
        let types = self.types.load();
        let known = || types.get(std::str::from_utf8(repository_id).ok()?).cloned();
        self.find(repository_id).map(|factory| (factory.info.type_code)()).or_else(known)
    }

    /// Registers the type `T`. Received values of the type become states without operations.
    pub fn register<T: ValueType>(&self) {
        self.add(ValueFactory::plain(T::description()));
    }

    /// Registers `factory`, which makes an implementation from the state of each received value of
    /// the type `T`.
    pub fn register_with<T: ValueType>(&self, factory: impl Fn(T) -> ValueImplementation<T> + Send + Sync + 'static) {
        self.register_custom(move |d: &mut Decoder<'_>| T::decode_state(d).map(&factory));
    }

    /// Registers `factory`, which reads the state of each received value of the type `T`. The
    /// method serves custom value types whose implementation writes another state than the declared
    /// state.
    pub fn register_custom<T: ValueType>(
        &self,
        factory: impl Fn(&mut Decoder<'_>) -> Result<ValueImplementation<T>, CdrError> + Send + Sync + 'static,
    ) {
        let read = move |d: &mut Decoder<'_>| factory(d).map(|made| made.object);
        self.add(ValueFactory { info: T::description(), read: Some(Arc::new(read)) });
    }

    /// Removes the type `T`. Returns false if it was not registered.
    pub fn unregister<T: ValueType>(&self) -> bool {
        let mut known = (*self.known.load_full()).clone();
        let found = known.remove(T::REPOSITORY_ID).is_some();
        self.known.store(Arc::new(known));
        found
    }

    fn add(&self, factory: ValueFactory) {
        let mut known = (*self.known.load_full()).clone();
        known.insert(factory.info.repository_id(), factory);
        self.known.store(Arc::new(known));
    }

    pub(crate) fn find(&self, repository_id: &[u8]) -> Option<ValueFactory> {
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
