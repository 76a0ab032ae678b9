// Test values for every type of interop.idl, compared by their CDR octets.
#ifndef CORELANE_INTEROP_VALUES_H
#define CORELANE_INTEROP_VALUES_H

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "interop.hh"
#include "product.h"

/// The characters of narrow strings.
enum class Repertoire { Ascii, Latin1, Unicode };

/// The values that this run may send.
struct Options {
  Repertoire repertoire = Repertoire::Ascii;
  /// Single characters are ASCII, even if strings have other characters.
  bool ascii_letters = false;
  /// The peer loses union discriminators without a label (JacORB).
  bool plain_unions = false;
};
inline Options options;

/// A reproducible source of values. In round 0, numbers are the minimum of their type, in round 1 the maximum.
class Random {
 public:
  explicit Random(unsigned round) : round(round), state_(0x9e3779b97f4a7c15ull * (round + 1)) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  unsigned below(unsigned n) { return static_cast<unsigned>(next() % n); }
  const unsigned round;

 private:
  uint64_t state_;
};

struct Letter { CORBA::Char c; };
struct Text { std::string s; };
struct ShortText { std::string s; };
struct WideText { std::wstring s; };
struct ShortWideText { std::wstring s; };
template <class A> struct Array { A v; };

// ---- Values ---------------------------------------------------------------------------------------------------------

template <class N>
void number(Random& r, N& v) {
  if (r.round == 0) v = std::numeric_limits<N>::lowest();
  else if (r.round == 1) v = std::numeric_limits<N>::max();
  else v = static_cast<N>(r.next());
}

inline void fill(Random& r, CORBA::Octet& v) { number(r, v); }
inline void fill(Random& r, CORBA::Short& v) { number(r, v); }
inline void fill(Random& r, CORBA::UShort& v) { number(r, v); }
inline void fill(Random& r, CORBA::Long& v) { number(r, v); }
inline void fill(Random& r, CORBA::ULong& v) { number(r, v); }
inline void fill(Random& r, CORBA::LongLong& v) { number(r, v); }
inline void fill(Random& r, CORBA::ULongLong& v) { number(r, v); }
inline void fill(Random& r, CORBA::Boolean& v) { v = r.round == 1 || (r.round > 1 && r.below(2)); }
inline void fill(Random& r, CORBA::Float& v) {
  if (r.round < 2) number(r, v);
  else if (r.round == 2) v = -0.0f;
  else if (r.round == 3) v = std::numeric_limits<float>::infinity();
  else v = static_cast<float>(static_cast<int64_t>(r.next())) / 65536.0f;
}
inline void fill(Random& r, CORBA::Double& v) {
  if (r.round < 2) number(r, v);
  else if (r.round == 2) v = -0.0;
  else if (r.round == 3) v = std::numeric_limits<double>::denorm_min();
  else v = static_cast<double>(static_cast<int64_t>(r.next())) / 65537.0;
}
inline void fill(Random& r, CORBA::LongDouble& v) {
  CORBA::Double nearby;
  fill(r, nearby);
  v = nearby;
}
/// Returns a narrow character. The function is not an overload of `fill`, because omniORB's CORBA::Char is
/// CORBA::Octet.
inline CORBA::Char letter(Random& r) {
  if (options.repertoire == Repertoire::Latin1 && !options.ascii_letters && r.round == 1) return 0xff;
  return r.round == 0 ? 0 : r.round == 1 ? 0x7f : static_cast<CORBA::Char>(r.below(128));
}
inline void fill(Random& r, Letter& v) { v.c = letter(r); }
inline void fill(Random& r, CORBA::WChar& v) {
  static const wchar_t some[] = {L'a', 0xe9, 0x20ac, 0x65e5, 0x672c, 0xfffd, 0x7f, 0x100};
  v = r.round == 0 ? L'\x01' : some[r.below(8)];
}
inline void fill(Random& r, Interop::Colour& v) {
  v = r.round == 0 ? Interop::RED : r.round == 1 ? Interop::BLUE : static_cast<Interop::Colour>(r.below(3));
}

inline std::string text(Random& r, unsigned longest) {
  static const std::vector<std::string> ascii = {"a", "Z", "7", " ", "~", "\x01", "\t", "\""};
  static const std::vector<std::string> latin1 = {"a", "\xe9", "\xff", "\xa0", "\xdf", "Z"};
  static const std::vector<std::string> unicode = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xe6\x97\xa5\xe6\x9c\xac", "\xf0\x9f\x9a\x80"};
  const auto& pieces = options.repertoire == Repertoire::Ascii    ? ascii
                       : options.repertoire == Repertoire::Latin1 ? latin1
                                                                  : unicode;
  std::string all;
  unsigned count = r.round == 0 ? 0 : r.round == 1 ? longest : r.below(longest + 1);
  for (unsigned i = 0; i < count; ++i) all += pieces[r.below(pieces.size())];
  return all;
}
inline std::string short_text(Random& r) {
  std::string all;
  unsigned count = r.round == 0 ? 0 : r.round == 1 ? 8 : r.below(9);
  for (unsigned i = 0; i < count; ++i) all += static_cast<char>('a' + r.below(26));
  return all;
}
inline std::wstring wide_text(Random& r, unsigned longest) {
  std::wstring all;
  unsigned count = r.round == 0 ? 0 : r.round == 1 ? longest : r.below(longest + 1);
  for (unsigned i = 0; i < count; ++i) {
    CORBA::WChar letter;
    fill(r, letter);
    all += letter;
  }
  return all;
}
inline void fill(Random& r, Text& v) { v.s = text(r, 40); }
inline void fill(Random& r, ShortText& v) { v.s = short_text(r); }
inline void fill(Random& r, WideText& v) { v.s = wide_text(r, 40); }
inline void fill(Random& r, ShortWideText& v) { v.s = wide_text(r, 6); }
inline void fill(Random& r, product::StringMember& v) { v = text(r, 12).c_str(); }

template <class E, size_t N>
void fill(Random& r, E (&v)[N]) {
  for (auto& element : v) fill(r, element);
}
template <class A>
void fill(Random& r, Array<A>& v) { fill(r, v.v); }

inline unsigned count_of(Random& r, unsigned longest) {
  return r.round == 0 ? 0 : r.round == 1 ? longest : r.below(longest + 1);
}
#define SEQUENCE(T, longest) \
  inline void fill(Random& r, T& v) { \
    v.length(count_of(r, longest)); \
    for (CORBA::ULong i = 0; i < v.length(); ++i) fill(r, v[i]); }
#define STRINGS(T, longest, make) \
  inline void fill(Random& r, T& v) { \
    v.length(count_of(r, longest)); \
    for (CORBA::ULong i = 0; i < v.length(); ++i) v[i] = (make).c_str(); }

SEQUENCE(Interop::OctetSeq, 300)
SEQUENCE(Interop::BooleanSeq, 9)
inline void fill(Random& r, Interop::CharSeq& v) {
  v.length(count_of(r, 9));
  for (CORBA::ULong i = 0; i < v.length(); ++i) v[i] = letter(r);
}
SEQUENCE(Interop::ShortSeq, 9)
SEQUENCE(Interop::UShortSeq, 9)
SEQUENCE(Interop::LongSeq, 40)
SEQUENCE(Interop::ULongSeq, 9)
SEQUENCE(Interop::LongLongSeq, 9)
SEQUENCE(Interop::ULongLongSeq, 9)
SEQUENCE(Interop::FloatSeq, 9)
SEQUENCE(Interop::DoubleSeq, 9)
STRINGS(Interop::StringSeq, 6, text(r, 10))
STRINGS(Interop::ShortNameSeq, 6, short_text(r))
SEQUENCE(Interop::ColourSeq, 9)
// CustomerList needs no functions of its own, because it is one C++ type with CustomerIdSeq.
SEQUENCE(Interop::CustomerIdSeq, 9)
SEQUENCE(Interop::BoundedLongSeq, 4)
SEQUENCE(Interop::BoundedOctetSeq, 16)
STRINGS(Interop::BoundedStringSeq, 3, text(r, 10))
SEQUENCE(Interop::LongSeqSeq, 5)
SEQUENCE(Interop::BoundedNestedSeq, 2)
SEQUENCE(Interop::WCharSeq, 9)
STRINGS(Interop::WStringSeq, 4, wide_text(r, 8))

inline void fill(Random& r, Interop::Point& v) { fill(r, v.x); fill(r, v.y); }
inline void fill(Random& r, Interop::Mixed& v) {
  fill(r, v.an_octet); fill(r, v.a_double); fill(r, v.a_boolean); fill(r, v.a_short); v.a_char = letter(r);
  fill(r, v.a_longlong); fill(r, v.another_octet); fill(r, v.a_float); fill(r, v.a_ushort); fill(r, v.a_ulong);
  fill(r, v.a_colour); fill(r, v.a_ulonglong); fill(r, v.last_octet); fill(r, v.a_long);
}
inline void fill(Random& r, Interop::Gapped& v) {
  fill(r, v.first); fill(r, v.a_double); fill(r, v.a_short); fill(r, v.a_longlong); fill(r, v.another_octet);
  fill(r, v.a_float); fill(r, v.a_ushort); fill(r, v.a_ulonglong); fill(r, v.last);
}
inline void fill(Random& r, Interop::Segment& v) { fill(r, v.from); fill(r, v.label); fill(r, v.to); }
inline void fill(Random& r, Interop::Person& v) {
  fill(r, v.full_name); fill(r, v.age); fill(r, v.nicknames); v.code = short_text(r).c_str(); fill(r, v.favourite);
}
inline void fill(Random& r, Interop::Keywords& v) { fill(r, v.type); fill(r, v.match); fill(r, v.self); fill(r, v.fn); }
inline void tree(Random& r, Interop::Tree& v, unsigned depth) {
  fill(r, v.value);
  v.branches.length(depth == 0 ? 0 : count_of(r, 3));
  for (CORBA::ULong i = 0; i < v.branches.length(); ++i) tree(r, v.branches[i], depth - 1);
}
inline void fill(Random& r, Interop::Tree& v) { tree(r, v, 4); }

SEQUENCE(Interop::PointSeq, 12)
SEQUENCE(Interop::MixedSeq, 5)
SEQUENCE(Interop::GappedSeq, 400)
SEQUENCE(Interop::PersonSeq, 4)
inline void fill(Random& r, Interop::MatrixSeq& v) {
  v.length(count_of(r, 3));
  for (CORBA::ULong i = 0; i < v.length(); ++i) {
    Array<Interop::Matrix> matrix;
    fill(r, matrix);
    Interop::Matrix_copy(v[i], matrix.v);
  }
}

template <class T>
T some(Random& r) {
  T v;
  fill(r, v);
  return v;
}
inline void fill(Random& r, Interop::OnBoolean& v) {
  if (r.below(2)) v.yes(some<CORBA::Long>(r)); else v.no(text(r, 9).c_str());
}
inline void fill(Random& r, Interop::OnChar& v) {
  switch (r.below(4)) {
    case 0: v.alpha(some<CORBA::Long>(r)); break;
    case 1: v.beta(text(r, 9).c_str()); v._d('b'); break;
    case 2: v.beta(text(r, 9).c_str()); v._d('c'); break;
    default: v.other(some<CORBA::Octet>(r)); v._d(options.plain_unions ? '\0' : 'z');
  }
}
inline void fill(Random& r, Interop::OnShort& v) {
  switch (r.below(options.plain_unions ? 3 : 4)) {
    case 0: v.lowest(some<CORBA::Octet>(r)); break;
    case 1: v.zero(some<Interop::Point>(r)); break;
    case 2: v.highest(some<CORBA::Double>(r)); break;
    default: v._default(); v._d(5);
  }
}
inline void fill(Random& r, Interop::OnUShort& v) {
  switch (r.below(3)) {
    case 0: v.none(some<CORBA::Boolean>(r)); break;
    case 1: v.many(some<Interop::PointSeq>(r)); break;
    default: v.some(::some<Interop::Colour>(r)); v._d(options.plain_unions ? 1 : 65535);
  }
}
inline void fill(Random& r, Interop::OnLong& v) {
  switch (r.below(3)) {
    case 0: v.human(some<Interop::Person>(r)); break;
    case 1: { Array<Interop::LongArray> a; fill(r, a); v.numbers(a.v); break; }
    default: v.text(::text(r, 9).c_str()); v._d(options.plain_unions ? 0 : -2147483647);
  }
}
inline void fill(Random& r, Interop::OnULong& v) {
  switch (r.below(options.plain_unions ? 2 : 3)) {
    case 0: v.small(some<CORBA::LongLong>(r)); break;
    case 1: v.words(some<Interop::StringSeq>(r)); break;
    default: v._default(); v._d(4294967295u);
  }
}
inline void fill(Random& r, Interop::OnLongLong& v) {
  switch (r.below(3)) {
    case 0: v.low(some<CORBA::Short>(r)); break;
    case 1: v.high(some<Interop::OctetSeq>(r)); break;
    default: v._default(); v._d(std::numeric_limits<CORBA::LongLong>::lowest());
  }
}
inline void fill(Random& r, Interop::OnULongLong& v) {
  switch (r.below(3)) {
    case 0: v.first(letter(r)); break;
    case 1: v.last(short_text(r).c_str()); break;
    default: v._default(); v._d(std::numeric_limits<CORBA::ULongLong>::max());
  }
}
inline void fill(Random& r, Interop::OnColour& v) {
  switch (r.below(3)) {
    case 0: v.red_part(some<Interop::OnBoolean>(r)); break;
    case 1: v.cold_part(some<Interop::Mixed>(r)); v._d(Interop::GREEN); break;
    default: v.cold_part(some<Interop::Mixed>(r)); v._d(Interop::BLUE);
  }
}
SEQUENCE(Interop::OnColourSeq, 4)

inline void fill(Random& r, Interop::Record& v) {
  fill(r, v.owner); fill(r, v.border); fill(r, v.path); fill(r, v.choice); fill(r, v.weights); fill(r, v.pair);
  fill(r, v.grid); fill(r, v.growth); fill(r, v.colours);
  v.digest.length(count_of(r, 20));
  for (CORBA::ULong i = 0; i < v.digest.length(); ++i) fill(r, v.digest[i]);
  fill(r, v.cells);
}
inline void fill(Random& r, Interop::WideRecord& v) {
  fill(r, v.letter); fill(r, v.gap); v.text = wide_text(r, 12).c_str(); v.code = wide_text(r, 6).c_str(); fill(r, v.words);
}

inline void fill(Random& r, CORBA::Any& v) {
  switch (r.below(8)) {
    case 0: v <<= some<Interop::Record>(r); break;
    case 1: v <<= some<Interop::OnColourSeq>(r); break;
    case 2: v <<= some<Interop::PersonSeq>(r); break;
    case 3: v <<= some<Interop::Tree>(r); break;
    case 4: { Array<Interop::LongArray> a; fill(r, a); v <<= Interop::LongArray_forany(a.v); break; }
    case 5: v <<= text(r, 20).c_str(); break;
    case 6: v <<= some<Interop::Colour>(r); break;
    default: v <<= some<CORBA::Any>(r);
  }
}

#undef SEQUENCE
#undef STRINGS

// ---- Comparison -----------------------------------------------------------------------------------------------------

inline void put(product::Stream& s, const CORBA::Octet& v) { product::put_octets(s, &v, 1); }
inline void put(product::Stream& s, const CORBA::Boolean& v) { put(s, static_cast<CORBA::Octet>(v)); }
/// Writes the used octets of a long double. A long double with a fraction of 64 bits uses ten octets.
inline void put(product::Stream& s, const CORBA::LongDouble& v) {
  constexpr int used = std::numeric_limits<CORBA::LongDouble>::digits == 64 ? 10 : sizeof v;
  product::put_octets(s, reinterpret_cast<const CORBA::Octet*>(&v), used);
}
inline void put(product::Stream& s, const Letter& v) { put(s, static_cast<CORBA::Octet>(v.c)); }
inline void put(product::Stream& s, const CORBA::WChar& v) { CORBA::ULong code = v; product::put_value(s, code); }
inline void put(product::Stream& s, const std::string& v) {
  for (unsigned char octet : v) put(s, static_cast<CORBA::Octet>(octet));
  put(s, CORBA::Octet{0});
}
inline void put(product::Stream& s, const std::wstring& v) {
  for (wchar_t letter : v) put(s, letter);
  put(s, L'\0');
}
inline void put(product::Stream& s, const Text& v) { put(s, v.s); }
inline void put(product::Stream& s, const ShortText& v) { put(s, v.s); }
inline void put(product::Stream& s, const WideText& v) { put(s, v.s); }
inline void put(product::Stream& s, const ShortWideText& v) { put(s, v.s); }
inline void put(product::Stream& s, const product::StringMember& v) { put(s, std::string(v.in())); }
template <class T>
void put(product::Stream& s, const T& v) { product::put_value(s, v); }
template <class E, size_t N>
void put(product::Stream& s, const E (&v)[N]) {
  for (const auto& element : v) put(s, element);
}
template <class A>
void put(product::Stream& s, const Array<A>& v) { put(s, v.v); }

/// Returns the octets of a value in hexadecimal.
template <class T>
std::string octets(const T& v) {
  static const char digits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned char octet : product::written([&](product::Stream& s) { put(s, v); })) {
    hex += digits[octet >> 4];
    hex += digits[octet & 15];
  }
  return hex;
}

#endif
