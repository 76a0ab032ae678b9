//! Creation of values that refer to each other in cycles.

use std::sync::Arc;

use super::object::{ValueImplementation, ValueType};
use super::region::ValueRegion;
use super::{RegionLink, ValueRef};

/// A builder of values that refer to each other. All values live as long as one of the handles that
/// [`close`](ValueGraph::close) returned or that were cloned after `close`.
///
/// # Examples
/// ```
/// use corelane::{CdrError, ValueGraph, ValueRef, mapping};
/// #[derive(Clone, Debug)]
/// struct Node { next: Option<ValueRef<Node>> }
/// # impl mapping::ValueType for Node {
/// #     fn encode_state(&self, e: &mut mapping::Encoder<'_>) -> Result<(), CdrError> { mapping::write_value(e, self.next.as_ref()) }
/// #     fn decode_state(d: &mut mapping::Decoder<'_>) -> Result<Self, CdrError> { Ok(Node { next: mapping::read_value(d)? }) }
/// # }
/// # corelane::value_type! { Node = ["IDL:Node:1.0"] }
/// # corelane::describe! { pub static NODE_TYPE for value Node = value("IDL:Node:1.0", "Node", 0, None, &[]) }
/// let graph = ValueGraph::new();
/// let first = graph.declare::<Node>();
/// let second = graph.add(Node { next: Some(first.clone()) });
/// graph.define(&first, Node { next: Some(second) });
/// let first = graph.close(first);
/// let around = first.get().next.as_ref().unwrap().get().next.clone();
/// assert_eq!(around, Some(first));
/// ```
#[derive(Debug)]
pub struct ValueGraph {
    region: Arc<ValueRegion>,
}

impl ValueGraph {
    /// Creates an empty graph.
    #[must_use]
    pub fn new() -> Self {
        ValueGraph { region: ValueRegion::open() }
    }

    /// Creates a value to which other values can refer before it is [defined](Self::define).
    #[must_use]
    pub fn declare<T: ValueType>(&self) -> ValueRef<T> {
        let index = self.region.declare();
        self.region.set_info(index, T::description());
        ValueRef::from_parts(RegionLink::Inside(Arc::downgrade(&self.region)), index)
    }

    /// Gives a declared value its state or implementation. Returns false if the value is already
    /// defined, or belongs to another graph.
    pub fn define<T: ValueType>(&self, value: &ValueRef<T>, state: impl Into<ValueImplementation<T>>) -> bool {
        let own = value.region().is_some_and(|region| Arc::ptr_eq(&region, &self.region));
        own && self.region.define(value.index(), T::description(), state.into().object)
    }

    /// Creates a value of the graph.
    pub fn add<T: ValueType>(&self, state: impl Into<ValueImplementation<T>>) -> ValueRef<T> {
        let value = self.declare();
        self.define(&value, state);
        value
    }

    /// Closes the graph. Returns a handle to the value `value`, which keeps all values of the graph
    /// alive.
    #[must_use]
    pub fn close<T: ?Sized>(self, value: ValueRef<T>) -> ValueRef<T> {
        self.region.set_open(false);
        value.clone()
    }
}

impl Default for ValueGraph {
    fn default() -> Self {
        ValueGraph::new()
    }
}
