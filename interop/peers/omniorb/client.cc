// client REFERENCE [options] [-ORB...]
//
// Calls every operation of interop.idl on the Suite at REFERENCE (IOR:, corbaloc:, or a file with
// such a text), and verifies all results. Prints `ok NAME` or `FAIL NAME ...` for each check, and
// finally `N passed, M failed`.
//
//   --no-wide          leave out wide characters (GIOP 1.0)
//   --chars WHICH      characters of narrow strings: ascii (default), latin1 or unicode;
//                      unicode needs -ORBnativeCharCodeSet UTF-8;
//                      latin1-strings: single characters are ASCII
//   --plain-unions     the peer keeps only union discriminators with a label (JacORB)
//   --skip NAME        leave out the check of that name
//   --rounds N         values per operation (6)
//   --big OCTETS       size of the largest message (1000000); 0 leaves large messages out
//   --threads N        concurrent callers (8); 0 leaves them out
//   --slow MS          duration of their slow operation (50)
//   --meet N           callers that must be inside the server at once (all; 0: not checked)
//   --shutdown         finally shut the server down

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include "product.h"
#include "servants.h"
#include "values.h"

namespace {

int passed = 0;
int failed = 0;
std::mutex report_lock;
std::set<std::string> skipped;

void report(const std::string& name, const std::string& trouble) {
  std::lock_guard<std::mutex> guard(report_lock);
  if (trouble.empty()) {
    ++passed;
    std::cout << "ok " << name << std::endl;
  } else {
    ++failed;
    std::cout << "FAIL " << name << " " << trouble << std::endl;
  }
}

std::string said(const CORBA::Exception& exception) {
  std::string all = exception._name();
  if (auto* system = CORBA::SystemException::_downcast(const_cast<CORBA::Exception*>(&exception))) {
    all += " minor " + product::minor_of(*system);
    all += " completed " + std::to_string(system->completed());
  }
  return all;
}

/// Runs a check. The check fails if it returns a text or throws an exception.
void check(const std::string& name, const std::function<std::string()>& work) {
  if (skipped.count(name)) return;
  std::string trouble;
  try {
    trouble = work();
  } catch (const CORBA::Exception& exception) {
    trouble = "got exception " + said(exception);
  }
  report(name, trouble);
}

template <class T>
std::string differs(const char* where, const T& expected, const T& got) {
  std::string wanted = octets(expected), have = octets(got);
  if (wanted == have) return "";
  return std::string(where) + " expected " + wanted + " got " + have;
}

CORBA::ORB_var the_orb;

/// Compares two anys. The octets of equal anys can differ, because omniORB does not initialise the padding in
/// TypeCodes.
std::string differs(const char* where, const CORBA::Any& expected, const CORBA::Any& got) {
  CORBA::TypeCode_var wanted = expected.type(), have = got.type();
  if (!wanted->equal(have)) return std::string(where) + " has another type";
  CORBA::Object_var object = the_orb->resolve_initial_references("DynAnyFactory");
  DynamicAny::DynAnyFactory_var factory = DynamicAny::DynAnyFactory::_narrow(object);
  DynamicAny::DynAny_var one = factory->create_dyn_any(expected), other = factory->create_dyn_any(got);
  return one->equal(other) ? "" : std::string(where) + " has another value";
}

template <class T>
std::string unequal(const char* where, const T& expected, const T& got) {
  if (expected == got) return "";
  std::ostringstream text;
  text << where << " expected " << expected << " got " << got;
  return text.str();
}

unsigned rounds = 6;

/// Checks one echo operation; `call(a, inout, out, result)` calls it.
template <class T, class Call>
void echo(const char* name, Call call) {
  check(name, [&]() -> std::string {
    for (unsigned round = 0; round < rounds; ++round) {
      T a{}, b{}, out{}, result{};
      Random for_a(round), for_b(round + 1);
      fill(for_a, a);
      fill(for_b, b);
      T inout = b;
      call(a, inout, out, result);
      for (auto& trouble : {differs("result", a, result), differs("inout", a, inout), differs("out", b, out)})
        if (!trouble.empty()) return "round " + std::to_string(round) + " " + trouble;
    }
    return "";
  });
}

std::string same(const char* where, CORBA::Object_ptr expected, CORBA::Object_ptr got) {
  bool equal = CORBA::is_nil(expected) ? CORBA::is_nil(got) : !CORBA::is_nil(got) && expected->_is_equivalent(got);
  return equal ? "" : std::string(where) + " is another object";
}

void echoes(Interop::Suite_ptr s, bool wide) {
#define BASIC(T, op) \
  echo<T>(#op, [&](const T& a, T& b, T& c, T& result) { result = s->op(a, b, c); });
#define CHARACTER(op) \
  echo<Letter>(#op, [&](const Letter& a, Letter& b, Letter& c, Letter& result) { result.c = s->op(a.c, b.c, c.c); });
#define FIXED BASIC
#define VARIABLE(T, op) \
  echo<T>(#op, [&](const T& a, T& b, T& c, T& result) { \
    T##_var out, returned = s->op(a, b, out.out()); c = out.in(); result = returned.in(); });
#define TEXT(op, V) \
  echo<V>(#op, [&](const V& a, V& b, V& c, V& result) { \
    CORBA::String_var inout = b.s.c_str(), out, returned; \
    returned = s->op(a.s.c_str(), inout.inout(), out.out()); \
    b.s = inout.in(); c.s = out.in(); result.s = returned.in(); });
#define ARRAY(T, op) \
  echo<Array<T>>(#op, [&](const Array<T>& a, Array<T>& b, Array<T>& c, Array<T>& result) { \
    T##_var returned = s->op(a.v, b.v, c.v); T##_copy(result.v, returned.in()); });
#define VARRAY(T, op) \
  echo<Array<T>>(#op, [&](const Array<T>& a, Array<T>& b, Array<T>& c, Array<T>& result) { \
    T##_var out, returned = s->op(a.v, b.v, out.out()); \
    T##_copy(c.v, out.in()); T##_copy(result.v, returned.in()); });
#define REFERENCE(T, op)
#define REFERENCES(T, op)
#define WIDE_BASIC(T, op) if (wide) BASIC(T, op)
#define WIDE_TEXT(op, V) \
  if (wide) echo<V>(#op, [&](const V& a, V& b, V& c, V& result) { \
    CORBA::WString_var inout = b.s.c_str(), out, returned; \
    returned = s->op(a.s.c_str(), inout.inout(), out.out()); \
    b.s = inout.in(); c.s = out.in(); result.s = returned.in(); });
#define WIDE_VARIABLE(T, op) if (wide) VARIABLE(T, op)
#define WIDE_ARRAY(T, op) if (wide) ARRAY(T, op)
#include "operations.def"
}

template <class T>
void insert(CORBA::Any& any, const T& v) { any <<= v; }
void insert(CORBA::Any& any, const CORBA::Octet& v) { any <<= CORBA::Any::from_octet(v); }
void insert(CORBA::Any& any, const CORBA::Boolean& v) { any <<= CORBA::Any::from_boolean(v); }
void insert(CORBA::Any& any, const Letter& v) { any <<= CORBA::Any::from_char(v.c); }
void insert(CORBA::Any& any, const Text& v) { any <<= v.s.c_str(); }
void insert(CORBA::Any& any, const ShortText& v) { any <<= CORBA::Any::from_string(v.s.c_str(), 8); }
void insert(CORBA::Any& any, const WideText& v) { any <<= CORBA::Any::from_wstring(v.s.c_str(), 0); }
void insert(CORBA::Any& any, const ShortWideText& v) { any <<= CORBA::Any::from_wstring(v.s.c_str(), 6); }

/// Checks a value in an any, and the any nested in two further anys.
template <class T>
void in_any(const std::string& operation, Interop::Suite_ptr s, const std::function<void(CORBA::Any&, const T&)>& put) {
  check("any(" + operation.substr(5) + ")", [&]() -> std::string {
    for (unsigned round = 0; round < rounds; ++round) {
      Random random(round);
      T v{};
      fill(random, v);
      CORBA::Any a, within, nested;
      put(a, v);
      within <<= a;
      nested <<= within;
      CORBA::Any inout = nested;
      CORBA::Any_var out, result = s->echo_any(a, inout, out.out());
      for (auto& trouble : {differs("result", a, result.in()), differs("inout", a, inout), differs("out", nested, out.in())})
        if (!trouble.empty()) return "round " + std::to_string(round) + " " + trouble;
    }
    return "";
  });
}

void anys(Interop::Suite_ptr s, bool wide) {
#define IN_ANY(T, op) in_any<T>(#op, s, [](CORBA::Any& any, const T& v) { insert(any, v); });
#define BASIC IN_ANY
#define CHARACTER(op) IN_ANY(Letter, op)
#define FIXED IN_ANY
#define VARIABLE IN_ANY
#define TEXT(op, V) IN_ANY(V, op)
#define ARRAY(T, op) in_any<Array<T>>(#op, s, [](CORBA::Any& any, const Array<T>& v) { any <<= T##_forany(T##_dup(v.v), true); });
#define VARRAY ARRAY
#define REFERENCE(T, op)
#define REFERENCES(T, op)
#define WIDE_BASIC(T, op) \
  if (wide) in_any<T>(#op, s, [](CORBA::Any& any, const T& v) { any <<= CORBA::Any::from_wchar(v); });
#define WIDE_TEXT(op, V) if (wide) IN_ANY(V, op)
#define WIDE_VARIABLE(T, op) if (wide) IN_ANY(T, op)
#define WIDE_ARRAY(T, op) if (wide) ARRAY(T, op)
#include "operations.def"
#undef IN_ANY
}

/// Echoes an any. Returns the texts of the result, of the inout parameter and of the nested any.
std::string returned(Interop::Suite_ptr s, const CORBA::Any& a, const std::function<std::string(const CORBA::Any&)>& look) {
  CORBA::Any within, nested;
  within <<= a;
  nested <<= within;
  CORBA::Any inout = nested;
  CORBA::Any_var out, result = s->echo_any(a, inout, out.out());
  const CORBA::Any *outer, *inner;
  if (!(out.in() >>= outer) || !(*outer >>= inner)) return "no any in any";
  return look(result.in()) + look(inout) + look(*inner);
}

/// Checks references, and TypeCodes, which omniORB's DynAny does not compare.
void references_in_any(Interop::Suite_ptr s, Interop::Bouncer_ptr mine) {
  auto bouncer = [&](const CORBA::Any& any) -> std::string {
    Interop::Bouncer_ptr got;
    return (any >>= got) ? same("bouncer", mine, got) : "no bouncer";
  };
  check("any(bouncer)", [&] {
    CORBA::Any a;
    a <<= mine;
    return returned(s, a, bouncer);
  });
  check("any(object)", [&] {
    CORBA::Any a;
    CORBA::Object_ptr object = s;
    a <<= object;
    return returned(s, a, [&](const CORBA::Any& any) -> std::string {
      CORBA::Object_var got;
      return (any >>= CORBA::Any::to_object(got.out())) ? same("object", s, got) : "no object";
    });
  });
  check("any(bouncer_seq)", [&] {
    CORBA::Any a;
    Interop::BouncerSeq list;
    list.length(2);
    list[0] = Interop::Bouncer::_duplicate(mine);
    a <<= list;
    return returned(s, a, [&](const CORBA::Any& any) -> std::string {
      const Interop::BouncerSeq* got;
      if (!(any >>= got) || got->length() != 2) return "no bouncers";
      return same("first", mine, (*got)[0]) + same("second", CORBA::Object::_nil(), (*got)[1]);
    });
  });
  check("any(link)", [&] {
    CORBA::Any a;
    Interop::Link link;
    link.label = "label";
    link.target = Interop::Bouncer::_duplicate(mine);
    link.anything = CORBA::Object::_duplicate(s);
    a <<= link;
    return returned(s, a, [&](const CORBA::Any& any) -> std::string {
      const Interop::Link* got;
      if (!(any >>= got)) return "no link";
      return unequal("label", std::string("label"), std::string(got->label)) + same("target", mine, got->target) +
             same("anything", s, got->anything);
    });
  });
  check("any(type_code)", [&] {
    CORBA::Any a;
    a <<= Interop::_tc_Record;
    return returned(s, a, [&](const CORBA::Any& any) -> std::string {
      CORBA::TypeCode_ptr got;
      if (!(any >>= got)) return "no TypeCode";
      return got->equal(Interop::_tc_Record) ? "" : "another TypeCode";
    });
  });
}

void references(Interop::Suite_ptr s, Bouncer_i& servant) {
  Interop::Bouncer_var mine = servant._this();
  Interop::Bouncer_var theirs = s->server_bouncer();
  references_in_any(s, mine);
  check("echo_bouncer", [&]() -> std::string {
    Interop::Bouncer_var inout = Interop::Bouncer::_duplicate(theirs), out, result;
    result = s->echo_bouncer(mine, inout.inout(), out.out());
    std::string trouble = same("result", mine, result) + same("inout", mine, inout) + same("out", theirs, out);
    inout = Interop::Bouncer::_nil();
    result = s->echo_bouncer(theirs, inout.inout(), out.out());
    return trouble + same("result", theirs, result) + same("inout", theirs, inout) + same("out", CORBA::Object::_nil(), out);
  });
  check("echo_object", [&]() -> std::string {
    CORBA::Object_var inout = CORBA::Object::_duplicate(theirs), out, result;
    result = s->echo_object(mine, inout.inout(), out.out());
    Interop::Bouncer_var narrowed = Interop::Bouncer::_narrow(result);
    Interop::Base_var wrong = Interop::Base::_narrow(out);
    return same("result", mine, narrowed) + same("inout", mine, inout) + same("out", theirs, out) +
           (CORBA::is_nil(wrong) ? "" : "a Bouncer was narrowed to Base");
  });
  check("echo_bouncer_seq", [&]() -> std::string {
    Interop::BouncerSeq a, b;
    a.length(3);
    a[0] = Interop::Bouncer::_duplicate(mine);
    a[2] = Interop::Bouncer::_duplicate(theirs);
    Interop::BouncerSeq_var out, result = s->echo_bouncer_seq(a, b, out.out());
    if (result->length() != 3 || b.length() != 3 || out->length() != 0) return "lengths";
    return same("result[0]", mine, result[0]) + same("result[1]", CORBA::Object::_nil(), result[1]) + same("inout[2]", theirs, b[2]);
  });
  check("echo_link", [&]() -> std::string {
    Interop::Link a, b;
    a.label = "one";
    a.target = Interop::Bouncer::_duplicate(mine);
    a.anything = CORBA::Object::_duplicate(s);
    b.label = "two";
    Interop::Link_var out, result = s->echo_link(a, b, out.out());
    return unequal("label", std::string("one"), std::string(result->label)) + same("target", mine, result->target) +
           same("anything", s, b.anything) + unequal("label", std::string("two"), std::string(out->label)) +
           same("target", CORBA::Object::_nil(), out->target);
  });
  check("call_back", [&]() -> std::string {
    CORBA::Long got = s->call_back(mine, Interop::FAIL_NOT, 41, "none");
    return unequal("result", CORBA::Long(41), got);
  });
  check("send_back", [&]() -> std::string {
    Interop::LongSeq values;
    values.length(20);
    for (CORBA::ULong i = 0; i < 20; ++i) values[i] = i;
    s->send_back(mine, values);
    auto got = servant.await(20, std::chrono::seconds(10));
    for (CORBA::ULong i = 0; i < 20; ++i)
      if (got.size() != 20 || got[i] != CORBA::Long(i)) return "got " + std::to_string(got.size()) + " values";
    return "";
  });
  check("bounce", [&]() -> std::string { return unequal("result", CORBA::Long(9), theirs->bounce(mine, 9)); });
}

/// Checks `fail(kind, code, text)` with each kind of exception.
void exceptions(const std::string& name, const std::function<CORBA::Long(Interop::Failure, CORBA::Long, const char*)>& fail) {
  check(name + "(FAIL_NOT)", [&] { return unequal("result", CORBA::Long(7), fail(Interop::FAIL_NOT, 7, "")); });
  check(name + "(FAIL_PLAIN)", [&]() -> std::string {
    try {
      fail(Interop::FAIL_PLAIN, 1, "x");
      return "expected Plain got a result";
    } catch (const Interop::Plain&) {
      return "";
    }
  });
  check(name + "(FAIL_REASON)", [&]() -> std::string {
    try {
      fail(Interop::FAIL_REASON, -5, "no luck");
      return "expected Reason got a result";
    } catch (const Interop::Reason& got) {
      return unequal("code", CORBA::Long(-5), got.code) + unequal("why", std::string("no luck"), std::string(got.why));
    }
  });
  check(name + "(FAIL_DETAILS)", [&]() -> std::string {
    try {
      fail(Interop::FAIL_DETAILS, 77, "long story");
      return "expected Details got a result";
    } catch (const Interop::Details& got) {
      try {
        fail_as_told(Interop::FAIL_DETAILS, 77, "long story");
      } catch (const Interop::Details& wanted) {
        return differs("members", wanted, got);
      }
      return "";
    }
  });
}

void dynamics(Interop::Suite_ptr s) {
  echo<CORBA::Any>("echo_any", [&](const CORBA::Any& a, CORBA::Any& b, CORBA::Any& c, CORBA::Any& result) {
    CORBA::Any_var out, returned = s->echo_any(a, b, out.out());
    c = out.in();
    result = returned.in();
  });
  check("echo_type_code", [&]() -> std::string {
    CORBA::TypeCode_var inout = CORBA::TypeCode::_duplicate(Interop::_tc_Tree), out;
    CORBA::TypeCode_var result = s->echo_type_code(Interop::_tc_Record, inout.inout(), out.out());
    return std::string(result->equal(Interop::_tc_Record) ? "" : "the result differs ") +
           (inout->equal(Interop::_tc_Record) ? "" : "inout differs ") + (out->equal(Interop::_tc_Tree) ? "" : "out differs");
  });
  check("pack", [&]() -> std::string {
    for (unsigned round = 0; round < rounds; ++round) {
      Random random(round);
      auto value = some<Interop::Record>(random);
      CORBA::Any_var any = s->pack(value);
      const Interop::Record* got;
      if (!(any.in() >>= got)) return "the any holds something else";
      auto trouble = differs("value", value, *got);
      if (!trouble.empty()) return trouble;
    }
    return "";
  });
  check("unpack", [&]() -> std::string {
    for (unsigned round = 0; round < rounds; ++round) {
      Random random(round);
      auto value = some<Interop::Record>(random);
      CORBA::Any any;
      any <<= value;
      Interop::Record_var got = s->unpack(any);
      auto trouble = differs("value", value, got.in());
      if (!trouble.empty()) return trouble;
    }
    CORBA::Any other;
    other <<= CORBA::Long(1);
    try {
      Interop::Record_var got = s->unpack(other);
      return "expected Plain got a result";
    } catch (const Interop::Plain&) {
      return "";
    }
  });
}

void contexts(Interop::Suite_ptr s) {
#ifdef WITHOUT_CONTEXTS
  check("properties", [&]() -> std::string {
    Interop::StringSeq_var got = s->properties("text");
    return unequal("without any", CORBA::ULong(1), got->length());
  });
#else
  check("properties", [&]() -> std::string {
    CORBA::Context_var top, context;
    the_orb->get_default_context(top.out());
    top->create_child("", context.out());
    const char* all[][2] = {{"user", "ann"}, {"site.name", "north"}, {"site.zone", ""}, {"sitemap", "no"}, {"other", "no"}};
    for (auto& [name, value] : all) {
      CORBA::Any any;
      any <<= value;
      context->set_one_value(name, any);
    }
    std::string told;
    Interop::StringSeq_var got = s->properties("text", context);
    for (CORBA::ULong i = 0; i < got->length(); ++i) told += std::string(got[i]) + "|";
    CORBA::Context_var none;
    top->create_child("", none.out());
    got = s->properties("text", none);
    return unequal("properties", std::string("text|site.name|north|site.zone||user|ann|"), told) +
           unequal("without any", CORBA::ULong(1), got->length());
  });
#endif
}

void failures(Interop::Suite_ptr s, Interop::Bouncer_ptr mine) {
  exceptions("fail", [&](Interop::Failure kind, CORBA::Long code, const char* text) { return s->fail(kind, code, text); });
  exceptions("call_back", [&](Interop::Failure kind, CORBA::Long code, const char* text) {
    return s->call_back(mine, kind, code, text);
  });
  for (const char* name : {"UNKNOWN", "BAD_PARAM", "NO_MEMORY", "IMP_LIMIT", "INV_OBJREF", "NO_PERMISSION", "INTERNAL", "MARSHAL",
                           "NO_IMPLEMENT", "BAD_OPERATION", "NO_RESOURCES", "NO_RESPONSE", "BAD_INV_ORDER", "DATA_CONVERSION",
                           "OBJECT_NOT_EXIST", "INV_POLICY"}) {
    check(std::string("fail_system(") + name + ")", [&]() -> std::string {
      for (CORBA::Short completed = 0; completed < 3; ++completed) {
        CORBA::ULong minor = completed == 1 ? 0x4f4d0001 : 0x12345678 + completed;
        try {
          s->fail_system(name, minor, completed);
          return "expected an exception got a result";
        } catch (const CORBA::SystemException& got) {
          std::string trouble = unequal("name", std::string(name), std::string(got._name())) +
                                unequal("minor", minor, got.minor()) +
                                unequal("completed", int(completed), int(got.completed()));
          if (!trouble.empty()) return trouble;
        }
      }
      return "";
    });
  }
  check("fail_system(none)", [&]() -> std::string { s->fail_system("none", 0, 0); return ""; });
  check("gone", [&]() -> std::string {
    try {
      Interop::Base_var gone = s->gone();
      CORBA::String_var name = gone->base_name();
      return "expected OBJECT_NOT_EXIST got a result";
    } catch (const CORBA::OBJECT_NOT_EXIST&) {
      return "";
    }
  });
}

void the_rest(Interop::Suite_ptr s, bool wide) {
  check("server_constants", [&]() -> std::string {
    Interop::Constants_var got = s->server_constants();
    return unequal("octet", int(Interop::AN_OCTET), int(got->an_octet)) +
           unequal("boolean", bool(Interop::A_BOOLEAN), bool(got->a_boolean)) +
           unequal("char", char(Interop::A_CHAR), char(got->a_char)) +
           unequal("short", CORBA::Short(Interop::A_SHORT), got->a_short) +
           unequal("ushort", CORBA::UShort(Interop::AN_USHORT), got->a_ushort) +
           unequal("long", CORBA::Long(Interop::A_LONG), got->a_long) +
           unequal("ulong", CORBA::ULong(Interop::AN_ULONG), got->a_ulong) +
           unequal("longlong", CORBA::LongLong(Interop::A_LONGLONG), got->a_longlong) +
           unequal("ulonglong", CORBA::ULongLong(Interop::AN_ULONGLONG), got->a_ulonglong) +
           unequal("float", CORBA::Float(Interop::A_FLOAT), got->a_float) +
           unequal("double", CORBA::Double(Interop::A_DOUBLE), got->a_double) +
           unequal("string", std::string(Interop::A_STRING), std::string(got->a_string)) +
           unequal("double_bound", CORBA::Long(Interop::DOUBLE_BOUND), got->double_bound) +
           unequal("some_bits", CORBA::Long(Interop::SOME_BITS), got->some_bits) +
           unequal("colour", int(Interop::A_COLOUR), int(got->a_colour)) +
           unequal("quarter", CORBA::Long(Interop::Right::QUARTER), got->quarter);
  });
  if (wide) check("wide_constants", [&]() -> std::string {
    CORBA::WChar letter;
    CORBA::WString_var text;
    s->wide_constants(letter, text.out());
    return unequal("letter", CORBA::ULong(Interop::A_WCHAR), CORBA::ULong(letter)) +
           (std::wstring(Interop::A_WSTRING) == text.in() ? "" : "the text differs");
  });
  check("attributes", [&]() -> std::string {
    CORBA::String_var who = s->implementation();
    if (std::strlen(who) == 0) return "no implementation named";
    Interop::Point origin = s->origin();
    s->level(-17);
    s->title("a title");
    Interop::LongSeq marks;
    marks.length(3);
    marks[0] = 1; marks[1] = -1; marks[2] = 0;
    s->marks(marks);
    s->paint(Interop::BLUE);
    CORBA::String_var title = s->title();
    Interop::LongSeq_var got = s->marks();
    return differs("origin", Interop::Point{0, -1}, origin) + unequal("level", CORBA::Long(-17), s->level()) +
           unequal("title", std::string("a title"), std::string(title)) + differs("marks", marks, got.in()) +
           unequal("paint", int(Interop::BLUE), int(s->paint()));
  });
  check("note", [&]() -> std::string {
    CORBA::LongLong sum;
    s->take_notes(sum);
    CORBA::LongLong expected = 0;
    for (CORBA::Long i = 0; i < 200; ++i) {
      s->note(i * 1000, "a note");
      expected += i * 1000;
    }
    CORBA::ULong seen = s->await_notes(200, 10000);
    CORBA::ULong taken = s->take_notes(sum);
    return unequal("count", CORBA::ULong(200), seen) + unequal("taken", CORBA::ULong(200), taken) + unequal("sum", expected, sum);
  });
  check("inheritance", [&]() -> std::string {
    Interop::Base_var base = s->server_bottom();
    Interop::Bottom_var bottom = Interop::Bottom::_narrow(base);
    if (CORBA::is_nil(bottom)) return "the base does not narrow to Bottom";
    Interop::Right_var right = Interop::Right::_narrow(base);
    Interop::Bouncer_var wrong = Interop::Bouncer::_narrow(base);
    if (!CORBA::is_nil(wrong)) return "the base narrows to Bouncer";
    CORBA::String_var a = base->base_name(), b = bottom->left_name(), c = right->right_name(0), d = bottom->bottom_name(),
                      e = bottom->base_name();
    std::string names = std::string(a) + " " + b.in() + " " + c.in() + " " + d.in() + " " + e.in();
    right->shared(99);
    CORBA::Long turned = 0;
    try {
      CORBA::String_var never = bottom->right_name(45);
    } catch (const Interop::Right::Turned& got) {
      turned = got.angle;
    }
    Interop::Right::BaseSeq_var copies = bottom->copies(3);
    if (copies->length() != 3) return "copies";
    return unequal("names", std::string("base left right bottom base"), names) + unequal("shared", CORBA::Long(99), bottom->shared()) +
           unequal("angle", CORBA::Long(45), turned) + same("copy", base, copies[2]) +
           (base->_is_a("IDL:corelane/Interop/Left:1.0") ? "" : "_is_a Left is false") +
           (base->_is_a("IDL:corelane/Interop/Nothing:1.0") ? "_is_a Nothing is true" : "") +
           (base->_non_existent() ? "_non_existent is true" : "");
  });
  check("bench", [&]() -> std::string {
    Interop::Bench_var bench = s->server_bench();
    bench->nothing();
    bench->bench_oneway(1);
    Random random(2);
    Interop::LongSeq longs;
    fill(random, longs);
    Interop::OctetSeq octet_seq;
    fill(random, octet_seq);
    Interop::LongSeq_var got_longs = bench->bench_longs(longs);
    Interop::OctetSeq_var got_octets = bench->bench_octets(octet_seq);
    CORBA::String_var text = bench->bench_string("some text");
    return unequal("octet", 200, int(bench->bench_octet(200))) + unequal("long", CORBA::Long(-3), bench->bench_long(-3)) +
           differs("point", Interop::Point{1, 2}, bench->bench_point(Interop::Point{1, 2})) + differs("longs", longs, got_longs.in()) +
           differs("octets", octet_seq, got_octets.in()) + unequal("string", std::string("some text"), std::string(text));
  });
}

void big_messages(Interop::Suite_ptr s, CORBA::ULong greatest) {
  for (CORBA::ULong size = 1000; size <= greatest; size *= 10) {
    check("big octets " + std::to_string(size), [&]() -> std::string {
      Interop::OctetSeq a, b;
      a.length(size);
      b.length(size / 2);
      for (CORBA::ULong i = 0; i < size; ++i) a[i] = static_cast<CORBA::Octet>(i * 7 + i / 256);
      for (CORBA::ULong i = 0; i < size / 2; ++i) b[i] = static_cast<CORBA::Octet>(i * 5 + i / 256);
      Interop::OctetSeq old = b;
      Interop::OctetSeq_var out, result = s->echo_octet_seq(a, b, out.out());
      auto equal = [](const Interop::OctetSeq& x, const Interop::OctetSeq& y) {
        return x.length() == y.length() && std::memcmp(x.get_buffer(), y.get_buffer(), x.length()) == 0;
      };
      return equal(a, result) && equal(a, b) && equal(old, out) ? "" : "octets differ";
    });
    check("big persons " + std::to_string(size), [&]() -> std::string {
      Interop::PersonSeq a, b;
      Random random(2);
      a.length(size / 100);
      for (CORBA::ULong i = 0; i < a.length(); ++i) fill(random, a[i]);
      Interop::PersonSeq_var out, result = s->echo_person_seq(a, b, out.out());
      return differs("result", a, result.in()) + differs("inout", a, b);
    });
  }
}

void concurrent(Interop::Suite_ptr s, Interop::Bouncer_ptr mine, unsigned threads, unsigned slow, unsigned meet) {
  Interop::Bouncer_var theirs = s->server_bouncer();
  auto began = std::chrono::steady_clock::now();
  std::vector<std::thread> callers;
  for (unsigned t = 0; t < threads; ++t) {
    callers.emplace_back([&, t] {
      check("thread " + std::to_string(t), [&]() -> std::string {
        std::string trouble;
        for (CORBA::Long i = 0; i < 5 && trouble.empty(); ++i) {
          s->sleep(slow);
          CORBA::Long b = i, c = 0, value = CORBA::Long(t) * 1000 + i;
          trouble += unequal("echo_long", value, s->echo_long(value, b, c));
          trouble += unequal("bounce", CORBA::Long(6), theirs->bounce(mine, 6));
          Interop::LongSeq longs, other;
          longs.length(1000);
          for (CORBA::ULong n = 0; n < 1000; ++n) longs[n] = value + n;
          Interop::LongSeq_var out, result = s->echo_long_seq(longs, other, out.out());
          trouble += differs("echo_long_seq", longs, result.in());
        }
        return trouble;
      });
    });
  }
  for (auto& caller : callers) caller.join();
  auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  std::cout << "took " << took.count() << " ms with " << threads << " threads" << std::endl;
  if (meet == 0) return;
  callers.clear();
  std::atomic<CORBA::ULong> most{0};
  check("meet", [&]() -> std::string {
    for (unsigned t = 0; t < meet; ++t) {
      callers.emplace_back([&] {
        try {
          CORBA::ULong seen = s->meet(meet, 20000);
          CORBA::ULong old = most;
          while (seen > old && !most.compare_exchange_weak(old, seen)) {}
        } catch (const CORBA::Exception&) {
          // The exception is ignored: the number of callers is then too small, and the check fails.
        }
      });
    }
    for (auto& caller : callers) caller.join();
    return unequal("callers inside at once", CORBA::ULong(meet), CORBA::ULong(most));
  });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    CORBA::ORB_var orb = product::orb(argc, argv);
    the_orb = orb;
    std::string reference;
    bool wide = true, shutdown = false;
    unsigned big = 1000000, threads = 8, slow = 50;
    int meet = -1;
    for (int i = 1; i < argc; ++i) {
      std::string word = argv[i];
      auto value = [&]() -> std::string { return i + 1 < argc ? argv[++i] : ""; };
      if (word == "--no-wide") wide = false;
      else if (word == "--chars") {
        std::string which = value();
        options.ascii_letters = which == "latin1-strings";
        options.repertoire = which == "unicode" ? Repertoire::Unicode
                             : which == "latin1" || options.ascii_letters ? Repertoire::Latin1
                                                                          : Repertoire::Ascii;
      }
      else if (word == "--plain-unions") options.plain_unions = true;
      else if (word == "--skip") skipped.insert(value());
      else if (word == "--rounds") rounds = std::atoi(value().c_str());
      else if (word == "--big") big = std::atoi(value().c_str());
      else if (word == "--threads") threads = std::atoi(value().c_str());
      else if (word == "--slow") slow = std::atoi(value().c_str());
      else if (word == "--meet") meet = std::atoi(value().c_str());
      else if (word == "--shutdown") shutdown = true;
      else if (reference.empty() && word[0] != '-') reference = word;
      else { std::cerr << "unknown argument " << word << "\n"; return 2; }
    }
    if (reference.rfind("IOR:", 0) != 0 && reference.rfind("corbaloc:", 0) != 0) {
      std::ifstream file(reference);
      reference.clear();
      file >> reference;
    }
    CORBA::Object_var found = orb->resolve_initial_references("RootPOA");
    PortableServer::POA_var root = PortableServer::POA::_narrow(found);
    PortableServer::POAManager_var manager = root->the_POAManager();
    manager->activate();
    product::serve(orb.in());
    Bouncer_i bouncer;
    Interop::Bouncer_var mine = bouncer._this();

    CORBA::Object_var object = orb->string_to_object(reference.c_str());
    Interop::Suite_var suite = Interop::Suite::_narrow(object);
    if (CORBA::is_nil(suite)) {
      std::cout << "FAIL narrow the reference is not a Suite" << std::endl;
      return 1;
    }
    echoes(suite, wide);
    references(suite, bouncer);
    dynamics(suite);
    anys(suite, wide);
    contexts(suite);
    failures(suite, mine);
    the_rest(suite, wide);
    if (big) big_messages(suite, big);
    if (threads) concurrent(suite, mine, threads, slow, meet < 0 ? threads : meet);
    if (shutdown) check("shutdown", [&]() -> std::string { suite->shutdown(); return ""; });
    std::cout << passed << " passed, " << failed << " failed" << std::endl;
    orb->destroy();
    return failed == 0 ? 0 : 1;
  } catch (const CORBA::Exception& exception) {
    std::cout << "FAIL setup " << said(exception) << std::endl;
    return 1;
  }
}
