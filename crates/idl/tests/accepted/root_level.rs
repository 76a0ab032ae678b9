// Made by the IDL compiler of Corelane from root_level.idl. Changes here are lost.

/// Says it again.
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::disallowed_names, clippy::len_without_is_empty)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
pub trait Echo: Send + Sync + 'static {
    fn echo_string(&self, mesg: &str) -> Result<String, corelane::SystemException>;

    /// A servant that runs these operations, to be activated.
    fn servant(this: Self) -> corelane::Servant
    where
        Self: Sized,
    {
        Echo::servant_of(std::sync::Arc::new(this))
    }

    /// The same for an object that others keep too.
    fn servant_of(this: std::sync::Arc<Self>) -> corelane::Servant
    where
        Self: Sized,
    {
        corelane::Servant::new(EchoSkeleton(this))
    }
}

/// A reference to a [`Echo`].
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::pedantic, clippy::type_complexity, clippy::upper_case_acronyms)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EchoRef(corelane::ObjectRef);

impl corelane::Reference for EchoRef {
    const REPOSITORY_ID: &'static str = "IDL:Echo:1.0";

    fn from_object(object: corelane::ObjectRef) -> Self {
        Self(object)
    }

    fn as_object(&self) -> &corelane::ObjectRef {
        &self.0
    }
}

corelane::reference_methods! { EchoRef }

impl std::fmt::Display for EchoRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(corelane::Reference::as_object(self), f)
    }
}

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::disallowed_names, clippy::len_without_is_empty)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
impl EchoRef {
    pub fn echo_string(&self, mesg: &str) -> Result<String, corelane::SystemException> {
        static OPERATION: corelane::mapping::Operation<'_> =
            corelane::mapping::Operation::new("echo_string");
        let this = corelane::Reference::as_object(self);
        let local = |servant: &(dyn Echo + 'static)| servant.echo_string(mesg);
        if let Some(servant) = this.direct() {
            return local(servant);
        }
        if let Some(outcome) = this.collocated(&OPERATION, local) {
            return outcome;
        }
        let results = |d: &mut corelane::mapping::Decoder<'_>| {
            let result = corelane::mapping::At::member(d.read_string(), "result", d)?;
            Ok(result)
        };
        this.call(&OPERATION, results, &|e| {
            corelane::mapping::At::member(e.write_str(mesg), "mesg", e)
        })
    }
}

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::pedantic, clippy::type_complexity, clippy::upper_case_acronyms)]
#[doc(hidden)]
pub struct EchoSkeleton(std::sync::Arc<dyn Echo>);

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::disallowed_names, clippy::len_without_is_empty)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
impl EchoSkeleton {
    #[doc(hidden)]
    pub fn call(
        servant: &dyn Echo,
        operation: usize,
        call: &mut corelane::mapping::ServerCall<'_>,
    ) -> Result<(), corelane::SystemException> {
        match operation {
            0 => {
                let d = call.arguments();
                let mesg = corelane::mapping::At::argument(d.read_str(), "mesg", d)?;
                let result = servant.echo_string(mesg)?;
                let e = call.reply();
                corelane::mapping::At::result(e.write_str(&result), "result", e)?;
                Ok(())
            }
            _ => Err(corelane::SystemException::bad_operation()),
        }
    }
}

impl corelane::mapping::Skeleton for EchoSkeleton {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:Echo:1.0"]
    }

    fn dispatch(
        &self,
        operation: &[u8],
        call: &mut corelane::mapping::ServerCall<'_>,
    ) -> Result<(), corelane::SystemException> {
        const NAMES: &[&str] = &["echo_string"];
        const DISPLACEMENTS: &[u16] = &[0];
        static OPERATIONS: corelane::mapping::OperationTable =
            corelane::mapping::OperationTable::new(0, DISPLACEMENTS, NAMES);
        match OPERATIONS.find(operation) {
            Some(operation) => Self::call(&*self.0, operation, call),
            None => Err(corelane::SystemException::bad_operation()),
        }
    }

    fn query_interface<'s>(&'s self, query: &mut corelane::mapping::InterfaceQuery<'s>) {
        query.provide::<_, dyn Echo>(&self.0, |this| this, |this| this);
    }
}

corelane::describe! { #[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)] pub static ECHO_TYPE for reference EchoRef = interface("IDL:Echo:1.0", "Echo") }

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::approx_constant, clippy::pedantic)]
pub const ANSWER: i32 = 42;
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::pedantic, clippy::type_complexity, clippy::upper_case_acronyms)]
pub type Lines = Vec<String>;
corelane::describe! { #[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)] pub static LINES_TYPE = alias("IDL:Lines:1.0", "Lines", &sequence(STRING, 0)) }

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::pedantic, clippy::type_complexity, clippy::upper_case_acronyms)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Option_ {
    pub result: i32,
}

corelane::plain! { Option_ { result: i32 } }

corelane::describe! { #[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)] pub static OPTION_TYPE for Option_ = structure("IDL:Option:1.0", "Option", &[
    member("result", LONG),
]) }

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::pedantic, clippy::type_complexity, clippy::upper_case_acronyms)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Err_ {
    pub lines_seen: Lines,
}

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::pedantic, clippy::type_complexity, clippy::upper_case_acronyms)]
impl corelane::mapping::Cdr for Err_ {
    const MIN_SIZE: usize = 4;

    fn encode(
        &self,
        e: &mut corelane::mapping::Encoder<'_>,
    ) -> Result<(), corelane::mapping::CdrError> {
        corelane::mapping::At::member(
            corelane::mapping::Cdr::encode(&self.lines_seen, e),
            "lines_seen",
            e,
        )
    }

    fn decode(d: &mut corelane::mapping::Decoder<'_>) -> Result<Self, corelane::mapping::CdrError> {
        Ok(Self {
            lines_seen: corelane::mapping::At::member(
                corelane::mapping::Cdr::decode(d),
                "lines_seen",
                d,
            )?,
        })
    }
}

corelane::user_exception! { Err_ = "IDL:Err:1.0" }

corelane::describe! { #[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)] pub static ERR_TYPE for exception Err_ = exception("IDL:Err:1.0", "Err", &[
    member("lines_seen", &LINES_TYPE),
]) }

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::disallowed_names, clippy::len_without_is_empty)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
pub trait Result_: Echo {
    fn r#match(&self, r#type: &Option_, self_: &[&str]) -> Result<Lines, result::MatchError>;
    fn servant_(&self) -> Result<(), corelane::SystemException>;

    /// A servant that runs these operations, to be activated.
    fn servant(this: Self) -> corelane::Servant
    where
        Self: Sized,
    {
        Result_::servant_of(std::sync::Arc::new(this))
    }

    /// The same for an object that others keep too.
    fn servant_of(this: std::sync::Arc<Self>) -> corelane::Servant
    where
        Self: Sized,
    {
        corelane::Servant::new(ResultSkeleton(this))
    }
}

/// A reference to a [`Result_`].
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::pedantic, clippy::type_complexity, clippy::upper_case_acronyms)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResultRef(EchoRef);

impl corelane::Reference for ResultRef {
    const REPOSITORY_ID: &'static str = "IDL:Result:1.0";

    fn from_object(object: corelane::ObjectRef) -> Self {
        Self(corelane::Reference::from_object(object))
    }

    fn as_object(&self) -> &corelane::ObjectRef {
        corelane::Reference::as_object(&self.0)
    }
}

corelane::reference_methods! { ResultRef }

impl std::fmt::Display for ResultRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(corelane::Reference::as_object(self), f)
    }
}

impl std::ops::Deref for ResultRef {
    type Target = EchoRef;

    fn deref(&self) -> &EchoRef {
        &self.0
    }
}

impl From<ResultRef> for EchoRef {
    fn from(derived: ResultRef) -> Self {
        corelane::Reference::unchecked_narrow(corelane::Reference::as_object(&derived))
    }
}

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::disallowed_names, clippy::len_without_is_empty)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
impl ResultRef {
    pub fn r#match(&self, r#type: &Option_, self_: &[&str]) -> Result<Lines, result::MatchError> {
        static OPERATION: corelane::mapping::Operation<'_> =
            corelane::mapping::Operation::new("match");
        let this = corelane::Reference::as_object(self);
        let local = |servant: &(dyn Result_ + 'static)| servant.r#match(r#type, self_);
        if let Some(servant) = this.direct() {
            return local(servant);
        }
        if let Some(outcome) = this.collocated(&OPERATION, local) {
            return outcome;
        }
        let results = |d: &mut corelane::mapping::Decoder<'_>| {
            let self_: Lines =
                corelane::mapping::At::member(corelane::mapping::Cdr::decode(d), "self_", d)?;
            Ok(self_)
        };
        this.call_raising(&OPERATION, results, &|e| {
            corelane::mapping::At::member(corelane::mapping::Cdr::encode(r#type, e), "type", e)?;
            corelane::mapping::At::member(e.write_len(self_.len()), "self_", e)?;
            for (index, item) in self_.iter().enumerate() {
                corelane::mapping::At::member(
                    corelane::mapping::At::element(e.write_str(item), index, e),
                    "self_",
                    e,
                )?;
            }
            Ok(())
        })
    }

    pub fn servant_(&self) -> Result<(), corelane::SystemException> {
        static OPERATION: corelane::mapping::Operation<'_> =
            corelane::mapping::Operation::new("servant");
        let this = corelane::Reference::as_object(self);
        let local = |servant: &(dyn Result_ + 'static)| servant.servant_();
        if let Some(servant) = this.direct() {
            return local(servant);
        }
        if let Some(outcome) = this.collocated(&OPERATION, local) {
            return outcome;
        }
        this.send_oneway(&OPERATION, &|_| Ok(()))
    }
}

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::pedantic, clippy::type_complexity, clippy::upper_case_acronyms)]
#[doc(hidden)]
pub struct ResultSkeleton(std::sync::Arc<dyn Result_>);

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::disallowed_names, clippy::len_without_is_empty)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
impl ResultSkeleton {
    #[doc(hidden)]
    pub fn call(
        servant: &dyn Result_,
        operation: usize,
        call: &mut corelane::mapping::ServerCall<'_>,
    ) -> Result<(), corelane::SystemException> {
        match operation {
            0 => {
                let d = call.arguments();
                let r#type: Option_ =
                    corelane::mapping::At::argument(corelane::mapping::Cdr::decode(d), "type", d)?;
                let len = corelane::mapping::At::argument(d.read_len(4), "self_", d)?;
                let self_ = corelane::mapping::At::argument(
                    d.read_slice_with(len, |d| d.read_str()),
                    "self_",
                    d,
                )?;
                let outcome = servant.r#match(&r#type, self_);
                let result = match outcome {
                    Ok(outcome) => outcome,
                    Err(error) => return error.raise(call),
                };
                let e = call.reply();
                corelane::mapping::At::result(
                    corelane::mapping::Cdr::encode(&result, e),
                    "result",
                    e,
                )?;
                Ok(())
            }
            1 => {
                servant.servant_()?;
                Ok(())
            }
            _ => Err(corelane::SystemException::bad_operation()),
        }
    }
}

impl corelane::mapping::Skeleton for ResultSkeleton {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:Result:1.0", "IDL:Echo:1.0"]
    }

    fn dispatch(
        &self,
        operation: &[u8],
        call: &mut corelane::mapping::ServerCall<'_>,
    ) -> Result<(), corelane::SystemException> {
        const NAMES: &[&str] = &["match", "servant", "echo_string"];
        const DISPLACEMENTS: &[u16] = &[2];
        static OPERATIONS: corelane::mapping::OperationTable =
            corelane::mapping::OperationTable::new(0, DISPLACEMENTS, NAMES);
        match OPERATIONS.find(operation) {
            Some(0) => Self::call(&*self.0, 0, call),
            Some(1) => Self::call(&*self.0, 1, call),
            Some(2) => EchoSkeleton::call(&*self.0, 0, call),
            _ => Err(corelane::SystemException::bad_operation()),
        }
    }

    fn query_interface<'s>(&'s self, query: &mut corelane::mapping::InterfaceQuery<'s>) {
        query.provide::<_, dyn Result_>(&self.0, |this| this, |this| this);
        query.provide::<_, dyn Echo>(&self.0, |this| this, |this| this);
    }
}

corelane::describe! { #[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)] pub static RESULT_TYPE for reference ResultRef = interface("IDL:Result:1.0", "Result") }

/// What belongs to `Result`.
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::approx_constant, clippy::disallowed_names)]
#[allow(clippy::enum_variant_names, clippy::large_enum_variant)]
#[allow(clippy::len_without_is_empty, clippy::module_inception)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
pub mod result {
    corelane::raises! {
        /// The exceptions of an operation.
        pub enum MatchError {
            Err_(super::Err_),
        }
    }
}
