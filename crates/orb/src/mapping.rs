//! What code made by the IDL compiler calls. Not for use by hand.

#[cfg(feature = "any")]
pub use corelane_wire::typecode::{Description, description};
pub use corelane_wire::{Cdr, CdrError, Decoder, Encoder, Octets, Primitive, Scratch};

#[cfg(feature = "any")]
pub use crate::any::TypedReference;
pub use crate::exception::{SystemException, UserException};
pub use crate::invocation::{Operation, Reply};
pub use crate::object::{ObjectRef, Reference, read_reference, write_reference};
pub use crate::operation_table::OperationTable;
pub use crate::servant::{Servant, ServerCall, Skeleton};
