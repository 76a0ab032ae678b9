//! Minor codes: vendor in the upper 20 bits, code in the lower 12 (CORBA 3.0.3 section 4.12.4, and OMG 03-01-04).
//!
//! Each module is named like the exception that its codes go with.

/// The OMG's codes.
pub const OMG: u32 = 0x4f4d_0000;
/// TAO's codes: where it happened in bits 7 to 11, `errno` in bits 0 to 6.
pub const TAO: u32 = 0x5441_0000;
/// omniORB's codes.
pub const OMNIORB: u32 = 0x4154_0000;
/// JacORB's codes.
pub const JACORB: u32 = 0x4a43_0000;
/// Our own codes, 256 of them: docs/wire-extensions.md.
pub const CORELANE: u32 = 0x434c_4e00;
/// The part of a minor code that names the vendor.
pub const VENDOR_MASK: u32 = 0xffff_f000;

/// With ACTIVITY_COMPLETED.
pub mod activity_completed {
    use super::OMG;

    /// Completed other than requested.
    pub const OTHER_THAN_REQUESTED: u32 = OMG | 1;
}

/// With ACTIVITY_REQUIRED.
pub mod activity_required {
    use super::OMG;

    /// No activity context.
    pub const NO_ACTIVITY_CONTEXT: u32 = OMG | 1;
}

/// With BAD_CONTEXT.
pub mod bad_context {
    use super::OMG;

    /// IDL context not found.
    pub const CONTEXT_NOT_FOUND: u32 = OMG | 1;
    /// No matching property.
    pub const NO_MATCHING_PROPERTY: u32 = OMG | 2;
}

/// With BAD_INV_ORDER.
pub mod bad_inv_order {
    use super::OMG;

    /// A dependency exists in the interface repository.
    pub const INTERFACE_REPOSITORY_DEPENDENCY: u32 = OMG | 1;
    /// The interface repository object cannot be destroyed.
    pub const INDESTRUCTIBLE_OBJECT: u32 = OMG | 2;
    /// The operation would deadlock.
    pub const WOULD_DEADLOCK: u32 = OMG | 3;
    /// The ORB is shut down.
    pub const ORB_SHUT_DOWN: u32 = OMG | 4;
    /// The Request was sent already.
    pub const REQUEST_SENT_TWICE: u32 = OMG | 5;
    /// The servant manager is set already.
    pub const SERVANT_MANAGER_ALREADY_SET: u32 = OMG | 6;
    /// ServerRequest::arguments out of order.
    pub const ARGUMENTS_ORDER: u32 = OMG | 7;
    /// ServerRequest::ctx out of order.
    pub const CTX_ORDER: u32 = OMG | 8;
    /// ServerRequest::set_result out of order.
    pub const SET_RESULT_ORDER: u32 = OMG | 9;
    /// The dynamic request was sent already.
    pub const REQUEST_ALREADY_SENT: u32 = OMG | 10;
    /// Polled before it was sent.
    pub const POLL_BEFORE_SEND: u32 = OMG | 11;
    /// The result was taken already.
    pub const RESULT_ALREADY_TAKEN: u32 = OMG | 12;
    /// A synchronous dynamic request has no poll.
    pub const POLL_ON_SYNCHRONOUS_REQUEST: u32 = OMG | 13;
    /// Not allowed at this interception point.
    pub const INVALID_INTERCEPTOR_CALL: u32 = OMG | 14;
    /// A service context with this id exists.
    pub const SERVICE_CONTEXT_EXISTS: u32 = OMG | 15;
    /// A policy factory for this type exists.
    pub const POLICY_FACTORY_EXISTS: u32 = OMG | 16;
    /// Create_POA while the POA is being destroyed.
    pub const POA_BEING_DESTROYED: u32 = OMG | 17;
    /// The priority is assigned already.
    pub const PRIORITY_REASSIGNED: u32 = OMG | 18;
    /// Xa_start returned XAER_OUTSIDE.
    pub const XA_OUTSIDE: u32 = OMG | 19;
    /// An XA call returned XAER_PROTO.
    pub const XA_PROTOCOL: u32 = OMG | 20;
    /// The transaction contexts differ.
    pub const TRANSACTION_CONTEXT_MISMATCH: u32 = OMG | 21;
    /// The poller has no response yet.
    pub const NO_RESPONSE_YET: u32 = OMG | 22;
    /// A TaggedProfileFactory for this tag exists.
    pub const PROFILE_FACTORY_EXISTS: u32 = OMG | 23;
    /// A TaggedComponentFactory for this tag exists.
    pub const COMPONENT_FACTORY_EXISTS: u32 = OMG | 24;
    /// The iteration is finished.
    pub const ITERATION_FINISHED: u32 = OMG | 25;
    /// Not allowed in post_init.
    pub const NOT_IN_POST_INIT: u32 = OMG | 26;
}

/// With BAD_OPERATION.
pub mod bad_operation {
    use super::OMG;

    /// The servant manager returned a servant of the wrong type.
    pub const WRONG_SERVANT_TYPE: u32 = OMG | 1;
    /// The target has no such operation.
    pub const UNKNOWN_OPERATION: u32 = OMG | 2;
}

/// With BAD_PARAM.
pub mod bad_param {
    use super::OMG;

    /// The value factory could not be registered or found.
    pub const VALUE_FACTORY: u32 = OMG | 1;
    /// The repository id is defined already.
    pub const REPOSITORY_ID_TAKEN: u32 = OMG | 2;
    /// The name is used already.
    pub const NAME_TAKEN: u32 = OMG | 3;
    /// The target is no valid container.
    pub const BAD_CONTAINER: u32 = OMG | 4;
    /// A name clash in the inherited context.
    pub const INHERITED_NAME_CLASH: u32 = OMG | 5;
    /// The type is no abstract interface.
    pub const ABSTRACT_INTERFACE_TYPE: u32 = OMG | 6;
    /// No known URL scheme.
    pub const URL_SCHEME: u32 = OMG | 7;
    /// A bad address in a URL.
    pub const URL_ADDRESS: u32 = OMG | 8;
    /// A bad scheme-specific part of a URL.
    pub const URL_SCHEME_SPECIFIC_PART: u32 = OMG | 9;
    /// Another error in a URL.
    pub const URL_OTHER: u32 = OMG | 10;
    /// An abstract interface with a non-abstract base.
    pub const ABSTRACT_FROM_NON_ABSTRACT: u32 = OMG | 11;
    /// A value type supports more than one non-abstract interface.
    pub const SUPPORTS_TWO_CONCRETE: u32 = OMG | 12;
    /// An incomplete TypeCode as an argument.
    pub const INCOMPLETE_TYPE_CODE: u32 = OMG | 13;
    /// An invalid object id.
    pub const INVALID_OBJECT_ID: u32 = OMG | 14;
    /// A bad name for a TypeCode.
    pub const TYPE_CODE_NAME: u32 = OMG | 15;
    /// A bad repository id for a TypeCode.
    pub const TYPE_CODE_REPOSITORY_ID: u32 = OMG | 16;
    /// A bad member name for a TypeCode.
    pub const TYPE_CODE_MEMBER_NAME: u32 = OMG | 17;
    /// A duplicate label of a union.
    pub const DUPLICATE_LABEL: u32 = OMG | 18;
    /// A label that does not fit the discriminator.
    pub const LABEL_TYPE: u32 = OMG | 19;
    /// A type that cannot be a discriminator.
    pub const DISCRIMINATOR_TYPE: u32 = OMG | 20;
    /// Set_exception with something else.
    pub const SET_EXCEPTION_WITHOUT_EXCEPTION: u32 = OMG | 21;
    /// A user exception that is not listed.
    pub const UNLISTED_USER_EXCEPTION: u32 = OMG | 22;
    /// No transmission code set for wide characters is known.
    pub const NO_WIDE_CODE_SET: u32 = OMG | 23;
    /// The service context is not in the OMG's range.
    pub const SERVICE_CONTEXT_NOT_OMG: u32 = OMG | 24;
    /// An enum value out of range.
    pub const ENUM_RANGE: u32 = OMG | 25;
    /// An invalid service context id.
    pub const INVALID_SERVICE_CONTEXT_ID: u32 = OMG | 26;
    /// A nil initial reference.
    pub const NIL_INITIAL_REFERENCE: u32 = OMG | 27;
    /// An invalid component id.
    pub const INVALID_COMPONENT_ID: u32 = OMG | 28;
    /// An invalid profile id.
    pub const INVALID_PROFILE_ID: u32 = OMG | 29;
    /// The same policy type twice.
    pub const DUPLICATE_POLICY_TYPE: u32 = OMG | 30;
    /// A oneway with results or exceptions.
    pub const BAD_ONEWAY: u32 = OMG | 31;
    /// A dynamic request for an implicit operation.
    pub const DYNAMIC_IMPLICIT_OPERATION: u32 = OMG | 32;
    /// An XA call returned XAER_INVAL.
    pub const XA_INVALID: u32 = OMG | 33;
    /// A modifier called with a wrong discriminator.
    pub const UNION_MODIFIER: u32 = OMG | 34;
    /// A bad property name.
    pub const CONTEXT_PROPERTY_NAME: u32 = OMG | 35;
    /// A bad search string.
    pub const CONTEXT_SEARCH_STRING: u32 = OMG | 36;
    /// A bad context name.
    pub const CONTEXT_NAME: u32 = OMG | 37;
    /// The context is not empty.
    pub const CONTEXT_NOT_EMPTY: u32 = OMG | 38;
    /// An unsupported RMI stream format.
    pub const STREAM_FORMAT: u32 = OMG | 39;
    /// No ValueOutputStream.
    pub const NO_VALUE_OUTPUT_STREAM: u32 = OMG | 40;
    /// No ValueInputStream.
    pub const NO_VALUE_INPUT_STREAM: u32 = OMG | 41;
    /// Only ISO 8859-1 is possible here.
    pub const ONLY_LATIN1: u32 = OMG | 42;
    /// The Pollable is in another PollableSet.
    pub const POLLABLE_IN_TWO_SETS: u32 = OMG | 43;
    /// A bad compression level (ZIOP).
    pub const COMPRESSION_LEVEL: u32 = OMG | 44;
}

/// With BAD_TYPECODE.
pub mod bad_typecode {
    use super::OMG;

    /// An incomplete TypeCode was to be sent.
    pub const INCOMPLETE: u32 = OMG | 1;
    /// A member with an illegitimate TypeCode.
    pub const ILLEGITIMATE_MEMBER: u32 = OMG | 2;
    /// A TypeCode that cannot be a parameter.
    pub const ILLEGAL_PARAMETER: u32 = OMG | 3;
}

/// With CODESET_INCOMPATIBLE.
pub mod codeset_incompatible {
    use super::OMG;

    /// No code set that both sides have.
    pub const NEGOTIATION_FAILED: u32 = OMG | 1;
    /// The client chose a code set that is not supported.
    pub const DELIVERED_SET_UNSUPPORTED: u32 = OMG | 2;
}

/// With DATA_CONVERSION.
pub mod data_conversion {
    use super::OMG;

    /// The character is not in the transmission code set.
    pub const CHARACTER_NOT_IN_CODE_SET: u32 = OMG | 1;
    /// A priority could not be mapped.
    pub const PRIORITY_MAPPING_FAILED: u32 = OMG | 2;
}

/// With IMP_LIMIT.
pub mod imp_limit {
    use super::OMG;

    /// No usable profile in the reference.
    pub const NO_USABLE_PROFILE: u32 = OMG | 1;
}

/// With INITIALIZE.
pub mod initialize {
    use super::OMG;

    /// The range of priorities is too restricted.
    pub const PRIORITY_RANGE: u32 = OMG | 1;
}

/// With INTF_REPOS.
pub mod intf_repos {
    use super::OMG;

    /// No interface repository.
    pub const UNAVAILABLE: u32 = OMG | 1;
    /// No entry for the interface.
    pub const NO_ENTRY: u32 = OMG | 2;
}

/// With INV_OBJREF.
pub mod inv_objref {
    use super::OMG;

    /// No support for wchar in the reference's code sets.
    pub const NO_WCHAR_SUPPORT: u32 = OMG | 1;
    /// The reference names no code sets.
    pub const CODE_SET_COMPONENT_REQUIRED: u32 = OMG | 2;
}

/// With INV_POLICY.
pub mod inv_policy {
    use super::OMG;

    /// The policies of reference and client cannot be reconciled.
    pub const IRRECONCILABLE: u32 = OMG | 1;
    /// An invalid policy type.
    pub const INVALID_TYPE: u32 = OMG | 2;
    /// No factory for this policy type.
    pub const NO_FACTORY: u32 = OMG | 3;
}

/// With MARSHAL.
pub mod marshal {
    use super::OMG;

    /// No value factory.
    pub const NO_VALUE_FACTORY: u32 = OMG | 1;
    /// Set_result before ctx.
    pub const SET_RESULT_BEFORE_CTX: u32 = OMG | 2;
    /// The argument list does not fit.
    pub const ARGUMENT_LIST: u32 = OMG | 3;
    /// A local object cannot be sent.
    pub const LOCAL_OBJECT: u32 = OMG | 4;
    /// Wide data of a client in GIOP 1.0.
    pub const WIDE_FROM_CLIENT_IN_GIOP_1_0: u32 = OMG | 5;
    /// Wide data of a server in GIOP 1.0.
    pub const WIDE_FROM_SERVER_IN_GIOP_1_0: u32 = OMG | 6;
    /// An unsupported RMI stream format.
    pub const STREAM_FORMAT: u32 = OMG | 7;
    /// Custom data does not fit the custom marshaller.
    pub const CUSTOM_DATA_MISMATCH: u32 = OMG | 8;
    /// The code sets changed on a connection.
    pub const CODE_SETS_CHANGED: u32 = OMG | 9;
}

/// With NO_IMPLEMENT.
pub mod no_implement {
    use super::OMG;

    /// No local implementation of the value.
    pub const NO_LOCAL_VALUE: u32 = OMG | 1;
    /// An incompatible version of the value.
    pub const INCOMPATIBLE_VALUE: u32 = OMG | 2;
    /// No usable profile in the reference.
    pub const NO_USABLE_PROFILE: u32 = OMG | 3;
    /// Dynamic invocation of a local object.
    pub const DYNAMIC_ON_LOCAL: u32 = OMG | 4;
    /// The operation does not exist for local objects.
    pub const NOT_IN_LOCAL_OBJECT: u32 = OMG | 8;
}

/// With NO_RESOURCES.
pub mod no_resources {
    use super::OMG;

    /// An interceptor operation that is not possible in this binding.
    pub const INTERCEPTOR_OPERATION: u32 = OMG | 1;
    /// No connection for the priority of the request.
    pub const NO_CONNECTION_FOR_PRIORITY: u32 = OMG | 2;
}

/// With OBJ_ADAPTER.
pub mod obj_adapter {
    use super::OMG;

    /// Unknown_adapter raised a system exception.
    pub const UNKNOWN_ADAPTER_RAISED: u32 = OMG | 1;
    /// The servant manager returned a servant of the wrong type.
    pub const WRONG_SERVANT_TYPE: u32 = OMG | 2;
    /// No default servant.
    pub const NO_DEFAULT_SERVANT: u32 = OMG | 3;
    /// No servant manager.
    pub const NO_SERVANT_MANAGER: u32 = OMG | 4;
    /// Incarnate broke a policy of the POA.
    pub const INCARNATE_POLICY: u32 = OMG | 5;
    /// Components_established raised.
    pub const COMPONENTS_ESTABLISHED: u32 = OMG | 6;
    /// The servant manager returned no servant.
    pub const NULL_SERVANT: u32 = OMG | 7;
}

/// With OBJECT_NOT_EXIST.
pub mod object_not_exist {
    use super::OMG;

    /// An unactivated value as a reference.
    pub const UNACTIVATED_VALUE: u32 = OMG | 1;
    /// No such object, or no such adapter.
    pub const NO_OBJECT_OR_ADAPTER: u32 = OMG | 2;
    /// The adapter is inactive.
    pub const ADAPTER_INACTIVE: u32 = OMG | 4;
    /// The poller has delivered already.
    pub const POLLER_DELIVERED: u32 = OMG | 5;
}

/// With TIMEOUT.
pub mod timeout {
    use super::OMG;

    /// The poller's time-out.
    pub const POLLER: u32 = OMG | 1;
    /// The request's end time.
    pub const REQUEST_END_TIME: u32 = OMG | 2;
    /// The reply's end time.
    pub const REPLY_END_TIME: u32 = OMG | 3;
}

/// With TRANSIENT.
pub mod transient {
    use super::OMG;

    /// The request was discarded, or resources ran out.
    pub const DISCARDED: u32 = OMG | 1;
    /// No usable profile or connection.
    pub const NO_USABLE_PROFILE: u32 = OMG | 2;
    /// The request was cancelled.
    pub const CANCELLED: u32 = OMG | 3;
    /// The POA was destroyed.
    pub const POA_DESTROYED: u32 = OMG | 4;
}

/// With UNKNOWN.
pub mod unknown {
    use super::OMG;

    /// A user exception that the operation does not list.
    pub const UNLISTED_USER_EXCEPTION: u32 = OMG | 1;
    /// A system exception that is not known.
    pub const NON_STANDARD_SYSTEM_EXCEPTION: u32 = OMG | 2;
    /// A user exception that is not known to the interceptor.
    pub const UNKNOWN_USER_EXCEPTION: u32 = OMG | 3;
}
