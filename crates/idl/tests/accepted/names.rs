// Made by the IDL compiler of Corelane from names.idl. Changes here are lost.

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::approx_constant, clippy::disallowed_names)]
#[allow(clippy::enum_variant_names, clippy::large_enum_variant)]
#[allow(clippy::len_without_is_empty, clippy::module_inception)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
pub mod names {
    use corelane::mapping::{
        At, Cdr, CdrError, Decoder, Encoder, InterfaceQuery, Operation, OperationTable, ServerCall,
        Skeleton,
    };
    use corelane::{ObjectRef, Reference, Servant, SystemException};

    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Refused;

    impl Cdr for Refused {
        const MIN_SIZE: usize = 0;

        fn encode(&self, _: &mut Encoder<'_>) -> Result<(), CdrError> {
            Ok(())
        }

        fn decode(_: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self)
        }
    }

    corelane::user_exception! { Refused = "IDL:Names/Refused:1.0" }

    corelane::describe! { pub static REFUSED_TYPE for exception Refused = exception("IDL:Names/Refused:1.0", "Refused", &[]) }

    pub type Longs = Vec<i32>;
    corelane::describe! { pub static LONGS_TYPE = alias("IDL:Names/Longs:1.0", "Longs", &sequence(LONG, 0)) }

    pub trait Locals: Send + Sync + 'static {
        /// The result is called as an `out` parameter is.
        fn next(&self, n: i32) -> Result<(bool, Longs, bool), locals::NextError>;
        fn plain(&self) -> Result<(bool, Longs), SystemException>;
        fn nothing(&self) -> Result<(i32, i32), locals::NextError>;
        fn all(
            &self,
            call: i32,
            servant: i32,
            operation: i32,
            d: i32,
            e: i32,
            len: i32,
            list: i32,
        ) -> Result<(i32, i32, i32, i32, i32), locals::NextError>;

        /// A servant that runs these operations, to be activated.
        fn servant(this: Self) -> Servant
        where
            Self: Sized,
        {
            Locals::servant_of(std::sync::Arc::new(this))
        }

        /// The same for an object that others keep too.
        fn servant_of(this: std::sync::Arc<Self>) -> Servant
        where
            Self: Sized,
        {
            Servant::new(LocalsSkeleton(this))
        }
    }

    /// A reference to a [`Locals`].
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct LocalsRef(ObjectRef);

    impl Reference for LocalsRef {
        const REPOSITORY_ID: &'static str = "IDL:Names/Locals:1.0";

        fn from_object(object: ObjectRef) -> Self {
            Self(object)
        }

        fn as_object(&self) -> &ObjectRef {
            &self.0
        }
    }

    corelane::reference_methods! { LocalsRef }

    impl std::fmt::Display for LocalsRef {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            std::fmt::Display::fmt(Reference::as_object(self), f)
        }
    }

    impl LocalsRef {
        /// The result is called as an `out` parameter is.
        pub fn next(&self, n: i32) -> Result<(bool, Longs, bool), locals::NextError> {
            static OPERATION: Operation<'_> = Operation::new("next");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Locals + 'static)| servant.next(n);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result = At::member(d.read_bool(), "result", d)?;
                let result_: Longs = At::member(Cdr::decode(d), "result_", d)?;
                let more = At::member(d.read_bool(), "more", d)?;
                Ok((result, result_, more))
            };
            this.call_raising(&OPERATION, results, &|e| {
                e.write_i32(n);
                Ok(())
            })
        }

        pub fn plain(&self) -> Result<(bool, Longs), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("plain");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Locals + 'static)| servant.plain();
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result = At::member(d.read_bool(), "result", d)?;
                let result_: Longs = At::member(Cdr::decode(d), "result_", d)?;
                Ok((result, result_))
            };
            this.call(&OPERATION, results, &|_| Ok(()))
        }

        pub fn nothing(&self) -> Result<(i32, i32), locals::NextError> {
            static OPERATION: Operation<'_> = Operation::new("nothing");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Locals + 'static)| servant.nothing();
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result = At::member(d.read_i32(), "result", d)?;
                let outcome = At::member(d.read_i32(), "outcome", d)?;
                Ok((result, outcome))
            };
            this.call_raising(&OPERATION, results, &|_| Ok(()))
        }

        pub fn all(
            &self,
            call: i32,
            servant: i32,
            operation: i32,
            d: i32,
            e: i32,
            len: i32,
            list: i32,
        ) -> Result<(i32, i32, i32, i32, i32), locals::NextError> {
            static OPERATION: Operation<'_> = Operation::new("all");
            let this = Reference::as_object(self);
            let local = |servant_: &(dyn Locals + 'static)| {
                servant_.all(call, servant, operation, d, e, len, list)
            };
            if let Some(servant_) = this.direct() {
                return local(servant_);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result = At::member(d.read_i32(), "result", d)?;
                let len_ = At::member(d.read_i32(), "len_", d)?;
                let list_ = At::member(d.read_i32(), "list_", d)?;
                let error = At::member(d.read_i32(), "error", d)?;
                let outcome = At::member(d.read_i32(), "outcome", d)?;
                Ok((result, len_, list_, error, outcome))
            };
            this.call_raising(&OPERATION, results, &|e_| {
                e_.write_i32(call);
                e_.write_i32(servant);
                e_.write_i32(operation);
                e_.write_i32(d);
                e_.write_i32(e);
                e_.write_i32(len);
                e_.write_i32(list);
                Ok(())
            })
        }
    }

    #[doc(hidden)]
    pub struct LocalsSkeleton(std::sync::Arc<dyn Locals>);

    impl LocalsSkeleton {
        #[doc(hidden)]
        pub fn call(
            servant: &dyn Locals,
            operation: usize,
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            match operation {
                0 => {
                    let (result, result_) = servant.plain()?;
                    let e = call.reply();
                    e.write_bool(result);
                    At::result(e.write_len(result_.len()), "result_", e)?;
                    e.write_slice_owned(result_);
                    Ok(())
                }
                1 => {
                    let outcome = servant.nothing();
                    let (result_, outcome) = match outcome {
                        Ok(outcome) => outcome,
                        Err(error) => return error.raise(call),
                    };
                    let e = call.reply();
                    e.write_i32(result_);
                    e.write_i32(outcome);
                    Ok(())
                }
                2 => {
                    let d = call.arguments();
                    let n = At::argument(d.read_i32(), "n", d)?;
                    let outcome = servant.next(n);
                    let (result, result_, more) = match outcome {
                        Ok(outcome) => outcome,
                        Err(error) => return error.raise(call),
                    };
                    let e = call.reply();
                    e.write_bool(result);
                    At::result(e.write_len(result_.len()), "result_", e)?;
                    e.write_slice_owned(result_);
                    e.write_bool(more);
                    Ok(())
                }
                3 => {
                    let d = call.arguments();
                    let call_ = At::argument(d.read_i32(), "call_", d)?;
                    let servant_ = At::argument(d.read_i32(), "servant_", d)?;
                    let operation_ = At::argument(d.read_i32(), "operation_", d)?;
                    let d_ = At::argument(d.read_i32(), "d_", d)?;
                    let e_ = At::argument(d.read_i32(), "e_", d)?;
                    let len_ = At::argument(d.read_i32(), "len_", d)?;
                    let list_ = At::argument(d.read_i32(), "list_", d)?;
                    let outcome = servant.all(call_, servant_, operation_, d_, e_, len_, list_);
                    let (result, len__, list__, error_, outcome) = match outcome {
                        Ok(outcome) => outcome,
                        Err(error) => return error.raise(call),
                    };
                    let e = call.reply();
                    e.write_i32(result);
                    e.write_i32(len__);
                    e.write_i32(list__);
                    e.write_i32(error_);
                    e.write_i32(outcome);
                    Ok(())
                }
                _ => Err(SystemException::bad_operation()),
            }
        }
    }

    impl Skeleton for LocalsSkeleton {
        fn repository_ids(&self) -> &'static [&'static str] {
            &["IDL:Names/Locals:1.0"]
        }

        fn dispatch(
            &self,
            operation: &[u8],
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            const NAMES: &[&str] = &["plain", "nothing", "next", "all"];
            const DISPLACEMENTS: &[u16] = &[0];
            static OPERATIONS: OperationTable = OperationTable::new(0, DISPLACEMENTS, NAMES);
            match OPERATIONS.find(operation) {
                Some(operation) => Self::call(&*self.0, operation, call),
                None => Err(SystemException::bad_operation()),
            }
        }

        fn query_interface<'s>(&'s self, query: &mut InterfaceQuery<'s>) {
            query.provide::<_, dyn Locals>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static LOCALS_TYPE for reference LocalsRef = interface("IDL:Names/Locals:1.0", "Locals") }

    /// What belongs to `Locals`.
    pub mod locals {
        corelane::raises! {
            /// The exceptions of an operation.
            pub enum NextError {
                Refused(super::Refused),
            }
        }

        /// The exceptions of an operation, which another operation has too.
        pub type NothingError = NextError;

        /// The exceptions of an operation, which another operation has too.
        pub type AllError = NextError;
    }
}
