// The servants of interop.idl: the suite for the server, and the bouncer for server and client.
#ifndef CORELANE_INTEROP_SERVANTS_H
#define CORELANE_INTEROP_SERVANTS_H

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "interop.hh"
#include "product.h"

/// Raises the exception that interop.idl describes at Failures::fail. Returns `code` for FAIL_NOT.
inline CORBA::Long fail_as_told(Interop::Failure kind, CORBA::Long code, const char* text) {
  switch (kind) {
    case Interop::FAIL_NOT:
      return code;
    case Interop::FAIL_PLAIN:
      throw Interop::Plain();
    case Interop::FAIL_REASON:
      throw Interop::Reason(code, text);
    case Interop::FAIL_DETAILS: {
      Interop::Details details;
      details.numbers.length(2);
      details.numbers[0] = code;
      details.numbers[1] = code + 1;
      details.words.length(2);
      details.words[0] = text;
      details.words[1] = "";
      details.place.x = code;
      details.place.y = -code;
      details.choice.no(text);
      throw details;
    }
  }
  throw CORBA::BAD_PARAM(0, CORBA::COMPLETED_NO);
}

/// Throws the system exception of that name. Returns if no system exception has the name.
inline void throw_system(const std::string& name, CORBA::ULong minor, CORBA::Short completed) {
  auto status = static_cast<CORBA::CompletionStatus>(completed);
#define NAMED(exception) \
  if (name == #exception) throw CORBA::exception(minor, status);
  NAMED(UNKNOWN) NAMED(BAD_PARAM) NAMED(NO_MEMORY) NAMED(IMP_LIMIT) NAMED(INV_OBJREF) NAMED(NO_PERMISSION)
  NAMED(INTERNAL) NAMED(MARSHAL) NAMED(NO_IMPLEMENT) NAMED(BAD_OPERATION) NAMED(NO_RESOURCES) NAMED(NO_RESPONSE)
  NAMED(BAD_INV_ORDER) NAMED(DATA_CONVERSION) NAMED(OBJECT_NOT_EXIST) NAMED(INV_POLICY)
#undef NAMED
}

class Bouncer_i : public POA_Interop::Bouncer {
 public:
  CORBA::Long bounce(Interop::Bouncer_ptr other, CORBA::Long depth) override {
    if (depth <= 0) return 0;
    Interop::Bouncer_var self = _this();
    return other->bounce(self, depth - 1) + 1;
  }
  CORBA::Long fail_back(Interop::Failure kind, CORBA::Long code, const char* text) override {
    return fail_as_told(kind, code, text);
  }
  void receive(CORBA::Long value) override {
    std::lock_guard<std::mutex> guard(lock_);
    received_.push_back(value);
    changed_.notify_all();
  }

  /// Waits until `count` values have been received, at most for `time`. Returns the received values, sorted.
  std::vector<CORBA::Long> await(size_t count, std::chrono::milliseconds time) {
    std::unique_lock<std::mutex> guard(lock_);
    changed_.wait_for(guard, time, [&] { return received_.size() >= count; });
    auto values = received_;
    std::sort(values.begin(), values.end());
    return values;
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<CORBA::Long> received_;
};

class Bottom_i : public POA_Interop::Bottom {
 public:
  char* base_name() override { return CORBA::string_dup("base"); }
  char* left_name() override { return CORBA::string_dup("left"); }
  char* bottom_name() override { return CORBA::string_dup("bottom"); }
  char* right_name(CORBA::Long angle) override {
    if (angle != 0) throw Interop::Right::Turned(angle);
    return CORBA::string_dup("right");
  }
  CORBA::Long shared() override { return shared_; }
  void shared(CORBA::Long value) override { shared_ = value; }
  Interop::Right::BaseSeq* copies(CORBA::ULong count) override {
    Interop::Right::BaseSeq_var all = new Interop::Right::BaseSeq;
    all->length(count);
    for (CORBA::ULong i = 0; i < count; ++i) all[i] = _this();
    return all._retn();
  }

 private:
  std::atomic<CORBA::Long> shared_{0};
};

class Bench_i : public POA_Interop::Bench {
 public:
  void nothing() override {}
  CORBA::Octet bench_octet(CORBA::Octet v) override { return v; }
  CORBA::Long bench_long(CORBA::Long v) override { return v; }
  Interop::Point bench_point(const Interop::Point& v) override { return v; }
  char* bench_string(const char* v) override { return CORBA::string_dup(v); }
  Interop::LongSeq* bench_longs(const Interop::LongSeq& v) override { return new Interop::LongSeq(v); }
  Interop::OctetSeq* bench_octets(const Interop::OctetSeq& v) override { return new Interop::OctetSeq(v); }
  void bench_oneway(CORBA::Octet) override {}
};

class Suite_i : public POA_Interop::Suite {
 public:
  /// Creates the suite. Its shutdown operation calls `stop`.
  Suite_i(PortableServer::POA_ptr poa, std::function<void()> stop)
      : poa_(PortableServer::POA::_duplicate(poa)), stop_(std::move(stop)) {}

#define BASIC(T, op) \
  T op(T a, T& b, T& c) override { c = b; b = a; return a; }
#define CHARACTER(op) BASIC(CORBA::Char, op)
#define FIXED(T, op) \
  T op(const T& a, T& b, T& c) override { c = b; b = a; return a; }
#define VARIABLE(T, op) \
  T* op(const T& a, T& b, T##_out c) override { c = new T(b); b = a; return new T(a); }
#define TEXT(op, values) \
  char* op(const char* a, char*& b, CORBA::String_out c) override { \
    c = b; b = CORBA::string_dup(a); return CORBA::string_dup(a); }
#define ARRAY(T, op) \
  T##_slice* op(const T a, T b, T c) override { T##_copy(c, b); T##_copy(b, a); return T##_dup(a); }
#define VARRAY(T, op) \
  T##_slice* op(const T a, T b, T##_out c) override { c = T##_dup(b); T##_copy(b, a); return T##_dup(a); }
#define REFERENCE(T, op) \
  T##_ptr op(T##_ptr a, T##_ptr& b, T##_out c) override { \
    c = b; b = T::_duplicate(a); return T::_duplicate(a); }
#define REFERENCES VARIABLE
#define WIDE_BASIC BASIC
#define WIDE_TEXT(op, values) \
  CORBA::WChar* op(const CORBA::WChar* a, CORBA::WChar*& b, CORBA::WString_out c) override { \
    c = b; b = CORBA::wstring_dup(a); return CORBA::wstring_dup(a); }
#define WIDE_VARIABLE VARIABLE
#define WIDE_ARRAY ARRAY
#include "operations.def"

  CORBA::Any* echo_any(const CORBA::Any& a, CORBA::Any& b, product::AnyOut c) override {
    c = new CORBA::Any(b);
    b = a;
    return new CORBA::Any(a);
  }
  CORBA::TypeCode_ptr echo_type_code(CORBA::TypeCode_ptr a, CORBA::TypeCode_ptr& b, CORBA::TypeCode_out c) override {
    c = b;
    b = CORBA::TypeCode::_duplicate(a);
    return CORBA::TypeCode::_duplicate(a);
  }
  CORBA::Any* pack(const Interop::Record& value) override {
    CORBA::Any_var any = new CORBA::Any;
    any.inout() <<= value;
    return any._retn();
  }
  Interop::Record* unpack(const CORBA::Any& value) override {
    const Interop::Record* record;
    if (!(value >>= record)) throw Interop::Plain();
    return new Interop::Record(*record);
  }

#ifdef WITHOUT_CONTEXTS
  Interop::StringSeq* properties(const char* text) override {
    Interop::StringSeq_var all = new Interop::StringSeq;
    all->length(1);
    all[0] = text;
    return all._retn();
  }
#else
  Interop::StringSeq* properties(const char* text, CORBA::Context_ptr context) override {
    std::map<std::string, std::string> told;
    CORBA::NVList_var values;
    try {
      context->get_values("", 0, "*", values.out());
    } catch (const CORBA::BAD_CONTEXT&) {
      // The exception means that the request had no properties.
    }
    for (CORBA::ULong i = 0; !CORBA::is_nil(values) && i < values->count(); ++i) {
      const char* value = "";
      *values->item(i)->value() >>= value;
      told[values->item(i)->name()] = value;
    }
    Interop::StringSeq_var all = new Interop::StringSeq;
    all->length(1 + 2 * told.size());
    CORBA::ULong at = 0;
    all[at++] = text;
    for (const auto& [name, value] : told) {
      all[at++] = name.c_str();
      all[at++] = value.c_str();
    }
    return all._retn();
  }
#endif

  void wide_constants(CORBA::WChar& letter, CORBA::WString_out text) override {
    letter = Interop::A_WCHAR;
    text = CORBA::wstring_dup(Interop::A_WSTRING);
  }

  CORBA::Long fail(Interop::Failure kind, CORBA::Long code, const char* text) override {
    return fail_as_told(kind, code, text);
  }
  void fail_system(const char* name, CORBA::ULong minor, CORBA::Short completed) override {
    throw_system(name, minor, completed);
  }

  void note(CORBA::Long value, const char*) override {
    std::lock_guard<std::mutex> guard(lock_);
    noted_ += 1;
    sum_ += value;
    changed_.notify_all();
  }
  CORBA::ULong take_notes(CORBA::LongLong& sum) override {
    std::lock_guard<std::mutex> guard(lock_);
    CORBA::ULong count = noted_;
    sum = sum_;
    noted_ = 0;
    sum_ = 0;
    return count;
  }
  CORBA::ULong await_notes(CORBA::ULong count, CORBA::ULong milliseconds) override {
    std::unique_lock<std::mutex> guard(lock_);
    changed_.wait_for(guard, std::chrono::milliseconds(milliseconds), [&] { return noted_ >= count; });
    return noted_;
  }

  char* implementation() override { return CORBA::string_dup("omniORB"); }
  Interop::Point origin() override { return Interop::Point{0, -1}; }
  CORBA::Long level() override { return locked(level_); }
  void level(CORBA::Long value) override { std::lock_guard<std::mutex> guard(lock_); level_ = value; }
  char* title() override { return CORBA::string_dup(locked(title_).c_str()); }
  void title(const char* value) override { std::lock_guard<std::mutex> guard(lock_); title_ = value; }
  Interop::LongSeq* marks() override { return new Interop::LongSeq(locked(marks_)); }
  void marks(const Interop::LongSeq& value) override { std::lock_guard<std::mutex> guard(lock_); marks_ = value; }
  Interop::Colour paint() override { return locked(paint_); }
  void paint(Interop::Colour value) override { std::lock_guard<std::mutex> guard(lock_); paint_ = value; }

  Interop::Bouncer_ptr server_bouncer() override { return bouncer_._this(); }
  Interop::Base_ptr server_bottom() override { return bottom_._this(); }
  Interop::Bench_ptr server_bench() override { return bench_._this(); }
  Interop::Base_ptr gone() override {
    PortableServer::Servant_var<Bottom_i> servant = new Bottom_i;
    PortableServer::ObjectId_var id = poa_->activate_object(servant.in());
    CORBA::Object_var object = poa_->id_to_reference(id.in());
    poa_->deactivate_object(id.in());
    // The narrow is unchecked, because some ORBs do not narrow a reference to a deactivated object.
    return Interop::Base::_unchecked_narrow(object.in());
  }
  CORBA::Long call_back(Interop::Bouncer_ptr target, Interop::Failure kind, CORBA::Long code,
                        const char* text) override {
    return target->fail_back(kind, code, text);
  }
  void send_back(Interop::Bouncer_ptr target, const Interop::LongSeq& values) override {
    for (CORBA::ULong i = 0; i < values.length(); ++i) target->receive(values[i]);
  }

  void sleep(CORBA::ULong milliseconds) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
  CORBA::ULong meet(CORBA::ULong callers, CORBA::ULong milliseconds) override {
    std::unique_lock<std::mutex> guard(lock_);
    if (inside_++ == 0) most_ = 0;
    most_ = std::max(most_, inside_);
    changed_.notify_all();
    changed_.wait_for(guard, std::chrono::milliseconds(milliseconds), [&] { return most_ >= callers; });
    --inside_;
    return most_;
  }

  Interop::Constants* server_constants() override {
    auto* all = new Interop::Constants;
    all->an_octet = Interop::AN_OCTET;
    all->a_boolean = Interop::A_BOOLEAN;
    all->a_char = Interop::A_CHAR;
    all->a_short = Interop::A_SHORT;
    all->a_ushort = Interop::AN_USHORT;
    all->a_long = Interop::A_LONG;
    all->a_ulong = Interop::AN_ULONG;
    all->a_longlong = Interop::A_LONGLONG;
    all->a_ulonglong = Interop::AN_ULONGLONG;
    all->a_float = Interop::A_FLOAT;
    all->a_double = Interop::A_DOUBLE;
    all->a_string = CORBA::string_dup(Interop::A_STRING);
    all->double_bound = Interop::DOUBLE_BOUND;
    all->some_bits = Interop::SOME_BITS;
    all->a_colour = Interop::A_COLOUR;
    all->quarter = Interop::Right::QUARTER;
    return all;
  }
  void shutdown() override { stop_(); }

 private:
  template <class T>
  T locked(const T& value) {
    std::lock_guard<std::mutex> guard(lock_);
    return value;
  }

  PortableServer::POA_var poa_;
  std::function<void()> stop_;
  std::mutex lock_;
  std::condition_variable changed_;
  CORBA::ULong noted_ = 0;
  CORBA::LongLong sum_ = 0;
  CORBA::ULong inside_ = 0;
  CORBA::ULong most_ = 0;
  CORBA::Long level_ = 0;
  std::string title_;
  Interop::LongSeq marks_;
  Interop::Colour paint_ = Interop::RED;
  Bouncer_i bouncer_;
  Bottom_i bottom_;
  Bench_i bench_;
};

#endif
