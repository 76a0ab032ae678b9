//! Calls without stubs, and servants without skeletons, with each other and with generated code.

use std::sync::Arc;

use corelane::dynamic::{DynamicServant, RequestError, ServerRequest};
use corelane::{Any, Orb, Servant, SystemException, SystemExceptionKind, TypeCode, Typed};
use corelane_tests::any::{AddError, EchoRef, Failed, Other, Point, serve_echo};

fn over_the_wire(echo: &EchoRef) -> (Orb, EchoRef) {
    let client = Orb::new().unwrap();
    let echo = client.string_to_reference(&echo.as_object().to_string()).unwrap();
    (client, echo)
}

fn add(echo: &EchoRef, a: i32, b: i32) -> corelane::dynamic::DynamicRequest {
    echo.as_object()
        .request("add")
        .input(Any::new(&a).unwrap())
        .inout(Any::new(&b).unwrap())
        .output(TypeCode::LONG)
        .returns(TypeCode::LONG)
        .raises(Failed::type_code())
}

fn calls(echo: &EchoRef) {
    let response = add(echo, 7, 3).invoke().unwrap();
    let numbers: Vec<i32> = response.outputs.iter().map(|any| any.extract().unwrap()).collect();
    assert_eq!((response.result.extract::<i32>().unwrap(), numbers), (10, vec![4, 21]));
    match add(echo, 7, -1).invoke() {
        Err(RequestError::User(any)) => {
            let failed: Failed = any.extract().unwrap();
            assert_eq!((failed.why.as_str(), failed.value.extract::<i32>().unwrap()), ("no", 7));
        }
        other => panic!("{other:?}"),
    }
    match add(echo, 7, -2).invoke() {
        Err(RequestError::System(unlisted)) => {
            assert_eq!((unlisted.kind(), unlisted.minor() & 0xfff), (SystemExceptionKind::Unknown, 1));
        }
        other => panic!("{other:?}"),
    }
    match add(echo, 7, -2).raises(Other::type_code()).invoke() {
        Err(RequestError::User(any)) => assert_eq!(any.extract::<Other>().unwrap(), Other { code: 7 }),
        other => panic!("{other:?}"),
    }
    echo.as_object().request("_set_level").input(Any::new(&5i32).unwrap()).invoke().unwrap();
    let level = echo.as_object().request("_get_level").returns(TypeCode::LONG).invoke().unwrap();
    assert_eq!(level.result.extract::<i32>().unwrap(), 5);
    echo.as_object().request("note").input(Any::new(&"noted".to_owned()).unwrap()).send_oneway().unwrap();
    let noted = echo.as_object().request("noted").returns(TypeCode::STRING);
    while noted.clone().invoke().unwrap().result.extract::<String>().unwrap() != "noted" {}
}

#[test]
fn dynamic_requests_call_generated_servants() {
    let (_server, local) = serve_echo(Orb::builder());
    calls(&local);
    let (_client, remote) = over_the_wire(&local);
    calls(&remote);
}

#[test]
fn deferred_dynamic_calls_get_their_results() {
    let (_server, local) = serve_echo(Orb::builder());
    let (_client, remote) = over_the_wire(&local);
    for echo in [local, remote] {
        let mut many: Vec<_> = (0..20).map(|a| add(&echo, a, 1).send_deferred().unwrap()).collect();
        for (a, deferred) in (0..20).zip(&mut many).rev() {
            assert_eq!(deferred.response().unwrap().result.extract::<i32>().unwrap(), a + 1);
            assert!(deferred.is_ready());
            match deferred.response() {
                Err(RequestError::System(again)) => {
                    assert_eq!((again.kind(), again.minor() & 0xfff), (SystemExceptionKind::BadInvOrder, 12));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn invalid_requests_are_refused() {
    let (_server, echo) = serve_echo(Orb::builder());
    let minor = |result: Result<_, RequestError>| match result {
        Err(RequestError::System(exception)) => (exception.kind(), exception.minor() & 0xfff),
        other => panic!("{other:?}"),
    };
    let object = echo.as_object();
    assert_eq!(minor(object.request("_is_a").invoke()), (SystemExceptionKind::BadParam, 32));
    let oneway = object.request("note").returns(TypeCode::LONG).send_oneway().unwrap_err();
    assert_eq!((oneway.kind(), oneway.minor() & 0xfff), (SystemExceptionKind::BadParam, 31));
    let illegal = (SystemExceptionKind::BadTypecode, 3);
    let failed = Any::new(&Failed { why: "no".into(), value: Any::null() }).unwrap();
    assert_eq!(minor(object.request("add").input(failed.clone()).invoke()), illegal);
    assert_eq!(minor(object.request("add").inout(Any::null()).invoke()), illegal);
    assert_eq!(minor(object.request("add").output(TypeCode::VOID).invoke()), illegal);
    assert_eq!(minor(object.request("add").returns(failed.type_code().clone()).invoke()), illegal);
    assert_eq!(minor(object.request("no_such").invoke()), (SystemExceptionKind::BadOperation, 2));
    assert_eq!(minor(object.request("noted").returns(Point::type_code()).invoke()).0, SystemExceptionKind::Marshal);
}

struct Dynamic {
    answers_twice: bool,
}

impl DynamicServant for Dynamic {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/dynamic/Echo:1.0", "IDL:corelane.test/dynamic/Base:1.0"]
    }

    fn invoke(&self, request: &mut ServerRequest<'_, '_>) -> Result<(), SystemException> {
        match request.operation() {
            "add" => {
                let arguments = request.arguments(&[TypeCode::LONG, TypeCode::LONG])?;
                let (a, b): (i32, i32) = (arguments[0].extract()?, arguments[1].extract()?);
                if b == -1 {
                    return request.raise(&Any::new(&Failed { why: "no".into(), value: Any::new(&a)? })?);
                }
                request.reply(&[Any::new(&(a + b))?, Any::new(&(a - b))?, Any::new(&(a * b))?])?;
                if self.answers_twice { request.reply(&[]) } else { Ok(()) }
            }
            "pass" => {
                let arguments = request.arguments(&[TypeCode::ANY, TypeCode::ANY])?;
                let inner: Any = arguments[0].extract()?;
                let type_code = Any::new(inner.type_code())?;
                request.reply(&[arguments[0].clone(), arguments[1].clone(), type_code])
            }
            "name_of" => request.reply(&[Any::new(&"dynamic".to_owned())?]),
            "note" => request.arguments(&[TypeCode::STRING]).map(drop),
            "noted" => request.raise(&Any::new(&1i32)?),
            _ => Err(SystemException::bad_operation()),
        }
    }
}

fn serve_dynamic(answers_twice: bool) -> (Orb, EchoRef) {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let poa = orb.root_poa();
    let id = poa.activate_object(&Servant::dynamic(Dynamic { answers_twice })).unwrap();
    poa.manager().activate().unwrap();
    let echo = EchoRef::from_object(poa.id_to_reference(&id).unwrap());
    (orb, echo)
}

#[test]
fn stubs_call_dynamic_servants() {
    let (_server, local) = serve_dynamic(false);
    let (_client, remote) = over_the_wire(&local);
    for echo in [local, remote] {
        assert_eq!(echo.add(7, 3).unwrap(), (10, 4, 21));
        assert!(
            matches!(echo.add(7, -1), Err(AddError::Failed(failed)) if failed.value.extract::<i32>().unwrap() == 7)
        );
        let value = Any::new(&Point { x: 1, y: 2.0 }).unwrap();
        let (result, inout, type_code) = echo.pass(&value, &Any::null()).unwrap();
        assert_eq!((&result, inout, type_code), (&value, Any::null(), Point::type_code()));
        assert_eq!(echo.name_of().unwrap(), "dynamic");
        echo.note("nothing").unwrap();
        assert!(EchoRef::narrow(echo.as_object()).unwrap().is_some());
        assert!(echo.as_object().is_a("IDL:corelane.test/dynamic/Base:1.0").unwrap());
        let kind = |result: Result<i32, SystemException>| result.unwrap_err().kind();
        assert_eq!(kind(echo.level()), SystemExceptionKind::BadOperation);
        let refused = echo.noted().unwrap_err();
        assert_eq!((refused.kind(), refused.minor() & 0xfff), (SystemExceptionKind::BadParam, 21));
    }
}

#[test]
fn second_reply_is_an_error() {
    let (_server, echo) = serve_dynamic(true);
    match echo.add(1, 1) {
        Err(AddError::System(twice)) => {
            assert_eq!((twice.kind(), twice.minor() & 0xfff), (SystemExceptionKind::BadInvOrder, 9));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_are_sent_from_many_threads() {
    let (_server, local) = serve_dynamic(false);
    let (_client, remote) = over_the_wire(&local);
    let remote = Arc::new(remote);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let remote = Arc::clone(&remote);
            scope.spawn(move || {
                for b in 1..50 {
                    assert_eq!(add(&remote, thread, b).invoke().unwrap().result.extract::<i32>().unwrap(), thread + b);
                }
            });
        }
    });
}
