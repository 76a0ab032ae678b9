// Made by the IDL compiler of Corelane from timed.idl. Changes here are lost.

/// Operations that say how long they take at most.
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::approx_constant, clippy::disallowed_names)]
#[allow(clippy::enum_variant_names, clippy::large_enum_variant)]
#[allow(clippy::len_without_is_empty, clippy::module_inception)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
pub mod timed {
    use corelane::mapping::{
        At, Decoder, InterfaceQuery, Operation, OperationTable, ServerCall, Skeleton,
    };
    use corelane::{ObjectRef, Reference, Servant, SystemException};

    pub trait Pump: Send + Sync + 'static {
        /// Half a millisecond of processor time.
        fn open_valve(&self, valve: i16) -> Result<(), SystemException>;
        fn pressure(&self) -> Result<i32, SystemException>;

        /// A servant that runs these operations, to be activated.
        fn servant(this: Self) -> Servant
        where
            Self: Sized,
        {
            Pump::servant_of(std::sync::Arc::new(this))
        }

        /// The same for an object that others keep too.
        fn servant_of(this: std::sync::Arc<Self>) -> Servant
        where
            Self: Sized,
        {
            Servant::new(PumpSkeleton(this))
        }
    }

    /// A reference to a [`Pump`].
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct PumpRef(ObjectRef);

    impl Reference for PumpRef {
        const REPOSITORY_ID: &'static str = "IDL:Timed/Pump:1.0";

        fn from_object(object: ObjectRef) -> Self {
            Self(object)
        }

        fn as_object(&self) -> &ObjectRef {
            &self.0
        }
    }

    corelane::reference_methods! { PumpRef }

    impl std::fmt::Display for PumpRef {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            std::fmt::Display::fmt(Reference::as_object(self), f)
        }
    }

    impl PumpRef {
        /// Half a millisecond of processor time.
        pub fn open_valve(&self, valve: i16) -> Result<(), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("open_valve");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Pump + 'static)| servant.open_valve(valve);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            this.run(&OPERATION, &|e| {
                e.write_i16(valve);
                Ok(())
            })
        }

        pub fn pressure(&self) -> Result<i32, SystemException> {
            static OPERATION: Operation<'_> = Operation::new("pressure");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Pump + 'static)| servant.pressure();
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(d.read_i32(), "result", d);
            this.call(&OPERATION, results, &|_| Ok(()))
        }
    }

    #[doc(hidden)]
    pub struct PumpSkeleton(std::sync::Arc<dyn Pump>);

    impl PumpSkeleton {
        #[doc(hidden)]
        pub fn call(
            servant: &dyn Pump,
            operation: usize,
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            match operation {
                0 => {
                    let result = servant.pressure()?;
                    let e = call.reply();
                    e.write_i32(result);
                    Ok(())
                }
                1 => {
                    let d = call.arguments();
                    let valve = At::argument(d.read_i16(), "valve", d)?;
                    servant.open_valve(valve)?;
                    Ok(())
                }
                _ => Err(SystemException::bad_operation()),
            }
        }
    }

    impl Skeleton for PumpSkeleton {
        fn repository_ids(&self) -> &'static [&'static str] {
            &["IDL:Timed/Pump:1.0"]
        }

        fn dispatch(
            &self,
            operation: &[u8],
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            const NAMES: &[&str] = &["pressure", "open_valve"];
            const DISPLACEMENTS: &[u16] = &[0];
            const WORST_CASES: &[u32] = &[0, 500];
            static OPERATIONS: OperationTable =
                OperationTable::timed(0, DISPLACEMENTS, NAMES, WORST_CASES);
            let found = OPERATIONS.find(operation);
            OPERATIONS.watch(found, call, |call| match found {
                Some(operation) => Self::call(&*self.0, operation, call),
                None => Err(SystemException::bad_operation()),
            })
        }

        fn query_interface<'s>(&'s self, query: &mut InterfaceQuery<'s>) {
            query.provide::<_, dyn Pump>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static PUMP_TYPE for reference PumpRef = interface("IDL:Timed/Pump:1.0", "Pump") }

    pub trait SafePump: Pump {
        fn stop(&self) -> Result<(), SystemException>;

        /// A servant that runs these operations, to be activated.
        fn servant(this: Self) -> Servant
        where
            Self: Sized,
        {
            SafePump::servant_of(std::sync::Arc::new(this))
        }

        /// The same for an object that others keep too.
        fn servant_of(this: std::sync::Arc<Self>) -> Servant
        where
            Self: Sized,
        {
            Servant::new(SafePumpSkeleton(this))
        }
    }

    /// A reference to a [`SafePump`].
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct SafePumpRef(PumpRef);

    impl Reference for SafePumpRef {
        const REPOSITORY_ID: &'static str = "IDL:Timed/SafePump:1.0";

        fn from_object(object: ObjectRef) -> Self {
            Self(Reference::from_object(object))
        }

        fn as_object(&self) -> &ObjectRef {
            Reference::as_object(&self.0)
        }
    }

    corelane::reference_methods! { SafePumpRef }

    impl std::fmt::Display for SafePumpRef {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            std::fmt::Display::fmt(Reference::as_object(self), f)
        }
    }

    impl std::ops::Deref for SafePumpRef {
        type Target = PumpRef;

        fn deref(&self) -> &PumpRef {
            &self.0
        }
    }

    impl From<SafePumpRef> for PumpRef {
        fn from(derived: SafePumpRef) -> Self {
            Reference::unchecked_narrow(Reference::as_object(&derived))
        }
    }

    impl SafePumpRef {
        pub fn stop(&self) -> Result<(), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("stop");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn SafePump + 'static)| servant.stop();
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            this.send_oneway(&OPERATION, &|_| Ok(()))
        }
    }

    #[doc(hidden)]
    pub struct SafePumpSkeleton(std::sync::Arc<dyn SafePump>);

    impl SafePumpSkeleton {
        #[doc(hidden)]
        pub fn call(
            servant: &dyn SafePump,
            operation: usize,
            _call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            match operation {
                0 => {
                    servant.stop()?;
                    Ok(())
                }
                _ => Err(SystemException::bad_operation()),
            }
        }
    }

    impl Skeleton for SafePumpSkeleton {
        fn repository_ids(&self) -> &'static [&'static str] {
            &["IDL:Timed/SafePump:1.0", "IDL:Timed/Pump:1.0"]
        }

        fn dispatch(
            &self,
            operation: &[u8],
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            const NAMES: &[&str] = &["open_valve", "stop", "pressure"];
            const DISPLACEMENTS: &[u16] = &[2];
            const WORST_CASES: &[u32] = &[500, 2000, 0];
            static OPERATIONS: OperationTable =
                OperationTable::timed(0, DISPLACEMENTS, NAMES, WORST_CASES);
            let found = OPERATIONS.find(operation);
            OPERATIONS.watch(found, call, |call| match found {
                Some(0) => PumpSkeleton::call(&*self.0, 1, call),
                Some(1) => Self::call(&*self.0, 0, call),
                Some(2) => PumpSkeleton::call(&*self.0, 0, call),
                _ => Err(SystemException::bad_operation()),
            })
        }

        fn query_interface<'s>(&'s self, query: &mut InterfaceQuery<'s>) {
            query.provide::<_, dyn SafePump>(&self.0, |this| this, |this| this);
            query.provide::<_, dyn Pump>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static SAFE_PUMP_TYPE for reference SafePumpRef = interface("IDL:Timed/SafePump:1.0", "SafePump") }
}
