//! Corelane: a Real-time CORBA ORB.
//!
//! An [`Orb`] is made by its [builder](Orb::builder). Servants implement the traits that the IDL compiler makes from
//! interfaces, and are activated with a [`Poa`](poa::Poa); clients call typed [references](Reference). Every call has a
//! deadline, and a [`SystemException`] says what went wrong, where and how long it took.
//!
//! The request path takes no lock that another connection's thread can hold, allocates nothing in steady state and finds
//! its servant in constant time; ARCHITECTURE.md draws it.
//!
//! Features, all on by default: `any` (`any`, TypeCodes, dynamic invocation and dynamic servants), `valuetype` (value types and abstract
//! interfaces), `shared-memory` (that transport is among those that an ORB has unless it is given others).
#![forbid(unsafe_code)]

mod address;
#[cfg(feature = "any")]
mod any;
mod bits;
mod cancel;
mod client;
mod clock;
mod context;
mod current;
mod describe;
#[cfg(feature = "any")]
pub mod dynamic;
mod event;
mod exception;
mod exception_macros;
mod fault;
mod fragment;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod invocation;
#[cfg(test)]
mod lending;
mod local;
mod long_double;
mod main_thread;
#[doc(hidden)]
pub mod mapping;
pub mod minor;
mod object;
mod operation_table;
mod orb;
mod plain_macros;
pub mod poa;
mod policy;
mod receive;
pub mod rt;
mod servant;
mod server;
#[cfg(test)]
mod simulation;
#[cfg(feature = "valuetype")]
mod value;

#[cfg(feature = "any")]
pub use any::{Any, Kind, TypeCode, TypeCodeError, Typed, Value};
pub use cancel::Canceller;
pub use client::held::OnewayBatch;
pub use context::Context;
pub use corelane_net::{Endpoint, Peer, Transports};
pub use corelane_wire::{
    Cdr, CdrError, CharSet, Decimal, DecimalError, Decoder, Encoder, Fixed, Ior, Limits, Octets, Version,
};
pub use current::{Current, current};
pub use event::{Event, EventCounts};
pub use exception::{Completion, Detail, Phase, SystemException, SystemExceptionKind, UserException};
pub use fault::Fault;
pub use invocation::{Deferred, Operation, Reply};
pub use local::{Local, Native};
pub use long_double::LongDouble;
pub use object::{ObjectRef, Reference};
pub use orb::{Orb, OrbBuilder, OrbError, ShutdownHandle};
pub use policy::{AllBusy, CallPolicies, RebindMode, SyncScope, Timeout, with_call_policies};
pub use servant::{Cast, Servant, ServerCall, Skeleton};
pub use server::config::{Dispatch, NestedWait, PoolConfig};
#[cfg(feature = "valuetype")]
pub use value::{Abstract, AnyValueRef, Implementation, State, ValueBase, ValueFactories, ValueGraph, ValueRef};

/// Includes the Rust code that a build script made from `NAME.idl`: `corelane::include_idl!("echo");`
#[macro_export]
macro_rules! include_idl {
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $name, ".rs"));
    };
}

#[cfg(feature = "valuetype")]
use value::value_space;

/// The space of a message's values, of which this program has no types.
#[cfg(not(feature = "valuetype"))]
const fn value_space() -> corelane_wire::cdr::ValueSpace {
    corelane_wire::cdr::ValueSpace::new()
}
