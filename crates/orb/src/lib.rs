//! Corelane: a Real-time CORBA ORB.
//!
//! A [builder](Orb::builder) makes an [`Orb`]. A servant implements the trait that the IDL compiler
//! makes from an interface, and is activated with a [`Poa`](poa::Poa). Clients make calls through
//! typed [references](Reference).
//!
//! Features, all on by default except `reply-memory-waits`:
//! - `any`: `any`, TypeCodes, dynamic invocation and dynamic servants.
//! - `valuetype`: value types and abstract interfaces.
//! - `half-sync`: the dispatch architecture half-sync/half-async.
//! - `shared-memory`: the shared-memory transport among an ORB's default transports, and payloads
//!   that are lent over it.
//! - `unix-sockets`: Unix sockets among an ORB's default transports.
//! - `keep-octets`: servants keep octets of requests without a copy (without this feature,
//!   [`keep_octets`] copies).
//! - `replies-first`: replies that were sent in part are completed before new requests run.
//! - `reply-memory-waits` (experimental): requests for operations with large replies wait while
//!   unread replies hold more than half of the memory that a lane permits them.
//! - `core-pool`: thread pools that serve the connections of tasks on the tasks' cores.
//! - `spin`: threads may poll sockets before they sleep, and leader/followers pools have core groups
//!   and burst mode.
//! - `minor-names`: exceptions are printed with the names of their minor codes.
#![forbid(unsafe_code)]

#[macro_use]
mod setters;

mod adapter;
mod address;
#[cfg(feature = "any")]
mod any;
mod bits;
mod cancel;
mod ceiling;
mod client;
mod clock;
mod config;
mod context;
mod cpu_charge;
mod current;
mod describe;
#[cfg(feature = "any")]
pub mod dynamic;
mod event;
mod exception;
mod exception_macros;
mod exchange;
mod fault;
mod fragment;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod interceptor;
mod invocation;
#[cfg(feature = "core-pool")]
mod job_budget;
#[cfg(feature = "keep-octets")]
mod kept_octets;
mod lendable_octets;
mod lent_messages;
mod listen_address;
mod local;
mod long_double;
mod main_thread;
#[doc(hidden)]
pub mod mapping;
mod memory;
pub mod minor;
mod nested_wait;
mod object;
mod object_key;
mod octets_buffer;
mod operation_table;
mod orb;
mod orb_context;
mod plain_macros;
pub mod poa;
mod policy;
#[cfg(test)]
mod priority_inheritance;
mod receive;
mod reference_macros;
pub mod rt;
mod servant;
mod server;
mod server_context;
mod service_contexts;
#[cfg(test)]
mod simulation;
mod slot_id;
mod text;
mod thread_context;
mod trail;
mod upcall_stack;
#[cfg(feature = "valuetype")]
mod value;
#[cfg(feature = "any")]
mod written_any;

#[cfg(feature = "any")]
pub use any::{Any, TypeCode, TypeCodeError, TypeCodeKind, Typed, Value};
pub use cancel::Canceller;
pub use client::connection::ImmediateSendResult;
pub use config::OnewayBatch;
pub use context::Context;
pub use corelane_net::{Endpoint, IoClass, OtherAddress, Peer, SpinPolicy, Transports};
pub use corelane_wire::cdr::ResultMemory;
pub use corelane_wire::{
    Cdr, CdrError, CharSet, Decimal, DecimalError, Decoder, Encoder, Fixed, Ior, Limits, Octets, Version,
};
pub use current::{Current, current, keep_octets, with_current_object_id};
pub use event::{Event, EventCounts};
pub use exception::{CallPhase, Completion, FailureDetail, SystemException, SystemExceptionKind, UserException};
pub use fault::PeerFault;
pub use interceptor::{AddedServiceContexts, Interceptor, RequestInfo, RequestOutcome, RequestServiceContexts};
pub use invocation::{DeferredCall, Operation, Reply};
pub use lendable_octets::{LendableNumbers, LendableOctets, SealedNumbers};
pub use local::{LocalRef, Native};
pub use long_double::LongDouble;
pub use object::{ObjectRef, Reference};
pub use octets_buffer::OctetsBuffer;
pub use orb::{Orb, OrbBuilder, OrbError, ShutdownHandle};
pub use policy::{CallPolicies, ConnectionPoolExhaustedAction, RebindMode, SyncScope, Timeout, with_call_policies};
pub use servant::{InterfaceQuery, Servant, ServerCall, Skeleton};
pub use server::config::{ConnectionLimits, Dispatch, NestedWait, PoolConfig};
pub use thread_context::{UpcallThread, upcall_thread};
#[cfg(feature = "valuetype")]
pub use value::{
    AnyValueRef, ObjectOrValue, ValueBase, ValueFactories, ValueGraph, ValueImplementation, ValueRef, ValueState,
};

/// Names that nearly every client and server uses: `use corelane::prelude::*;`.
pub mod prelude {
    pub use crate::poa::Poa;
    pub use crate::{
        CallPolicies, Dispatch, ObjectRef, Orb, OrbBuilder, OrbError, PoolConfig, Reference, Servant, SystemException,
        Timeout,
    };
}

#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/client.md")]
    struct Client;
    #[doc = include_str!("../../../docs/operations.md")]
    struct Operations;
    #[doc = include_str!("../../../docs/options.md")]
    struct Options;
}

/// Includes the Rust code that a build script made from `NAME.idl`:
/// `corelane::include_idl!("echo");`
#[macro_export]
macro_rules! include_idl {
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $name, ".rs"));
    };
}
