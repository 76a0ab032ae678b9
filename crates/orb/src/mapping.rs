//! Items that code from the IDL compiler uses.

pub use corelane_sys::plain::plain_octets_mut;
pub use corelane_wire::cdr::{BulkCdr, BulkLayout, BulkReader, BulkWriter};
#[cfg(feature = "any")]
pub use corelane_wire::typecode::{StaticTypeCode, description};
pub use corelane_wire::{Cdr, CdrError, Decoder, Encoder, Octets, Primitive, Scratch};

#[cfg(feature = "any")]
pub use crate::any::ReferenceWithTypeCode;
pub use crate::bits::BitField;
pub use crate::exception::{SystemException, UserException};
pub use crate::invocation::result_memory::copy_result;
pub use crate::invocation::{Operation, Reply};
pub use crate::local::{LocalRef, read_local, write_local};
pub use crate::object::{ObjectRef, Reference, read_reference, write_reference};
pub use crate::operation_table::OperationTable;
pub use crate::servant::{InterfaceQuery, Servant, ServerCall, Skeleton};
pub use crate::trail::At;
#[cfg(all(feature = "any", feature = "valuetype"))]
pub use crate::value::TypedValue;
#[cfg(feature = "valuetype")]
pub use crate::value::{
    Inherits, ObjectOrValue, ValueBase, ValueImplementation, ValueInfo, ValueKind, ValueObject, ValueRef, ValueType,
    read_abstract, read_value, write_abstract, write_value,
};
