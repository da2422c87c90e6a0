"""Headers as NVIDIA writes them: what is declared, which comment belongs to it, and what a comment says without its markup."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchcuda.rag.headers.comments import BRIEF_CHARS, cut, plain
from stitchcuda.rag.headers.declarations import Declaration, read


def one(source: str) -> Declaration:
    (found,) = read(source).declarations
    return found


def names(source: str) -> list[tuple[str, str]]:
    return [(found.kind, f"{found.inside}::{found.name}".removeprefix("::")) for found in read(source).declarations]


@pytest.mark.parametrize(
    ("source", "kind", "name"),
    [
        ("extern __host__ cudaError_t CUDARTAPI cudaFree(void *devPtr);", "function", "cudaFree"),
        ("__DECL__ __DEPRECATED__(__SAY(__shfl)) int __shfl(int var, int width=warpSize) __DEF_IF_HOST", "function", "__shfl"),
        ("static __inline__ unsigned __FLOAT_BITS(float f) { return f ? '{' : 1; }", "function", "__FLOAT_BITS"),
        ("template <class T, class U = A<(1 > 0)>> auto reduce(T&& t) -> decltype(t(t));", "function", "reduce"),
        ("typedef void (CUDART_CB *cudaHostFn_t)(void *userData);", "type", "cudaHostFn_t"),
        ("typedef struct cudnnPoolingStruct *cudnnPoolingDescriptor_t CUDNN_DEPRECATED;", "type", "cudnnPoolingDescriptor_t"),
        ("using size = unsigned;", "type", "size"),
        ("uint3 __device_builtin__ __STORAGE__ threadIdx;", "variable", "threadIdx"),
        ("#define cudaHostAllocMapped 0x02 /**< Map allocation */", "macro", "cudaHostAllocMapped"),
        ("#if A\nint f(int);\n#else\nint f(\n#endif\nlong);", "function", "f"),
    ],
)
def test_what_is_declared(source: str, kind: str, name: str) -> None:
    found = read(source).declarations[0]
    assert (found.kind, found.name) == (kind, name)


@pytest.mark.parametrize(
    ("source", "kind", "name"),
    [
        ("template <int N> OLD_BECAUSE(\"use bits\") __device__ unsigned BFE(unsigned bits);", "function", "BFE"),
        ("using New [[deprecated]] = Old;", "type", "New"),
        ("struct A { explicit A(int n) : held(n) {} };", "function", "A"),
        ("struct A { std::function<int(float)> call = nullptr; };", "field", "call"),
        ("struct json::as<float> { int x; };", "type", "as"),
        ("DEFINE_TYPES(char, 1) DEFINE_TYPES(short, 2) template <class T> struct Held { T x; };", "type", "Held"),
        ("typedef struct COPY_st { int x; } COPY_PARAMS;", "type", "COPY_PARAMS"),
    ],
)
def test_what_is_declared_in_roundabout_ways(source: str, kind: str, name: str) -> None:
    assert (kind, name) in [(found.kind, found.name) for found in read(source).declarations]


def test_a_type_has_all_its_names() -> None:
    types = [found for found in read("typedef enum kind_enum { A } kind, *kind_ptr; struct plain { int x; } one;").declarations
             if found.kind in ("type", "enum")]  # fmt: skip
    assert [(found.name, found.also) for found in types] == [("kind", ("kind_ptr", "kind_enum")), ("plain", ())]
    pasted = "#define VERSION 2\ntypedef struct pool_st { int x; } _CONCAT_OUTER(pool_v, VERSION);"
    assert ("type", "pool_v2") in names(pasted)


def test_a_field_may_be_declared_behind_its_type() -> None:
    assert names("union U { struct Wait { int flags; } wait; };") == [
        ("type", "U"), ("type", "U::Wait"), ("field", "U::Wait::flags"), ("field", "U::wait"),
    ]  # fmt: skip


def test_what_only_old_programs_see_does_not_count_twice() -> None:
    source = """
    int copy(size_t bytes);
    #if defined(__CUDA_API_VERSION_INTERNAL)
    int copy(unsigned bytes);
    int copy_v1(unsigned bytes);
    #endif
    """
    assert [found.text for found in read(source).declarations] == ["int copy(size_t bytes);", "int copy_v1(unsigned bytes);"]


def test_a_program_in_a_string_declares_nothing() -> None:
    assert names('constexpr char source[] = R"delimiter(int f(int); ")delimiter";\nint g(int);') == [
        ("variable", "source"), ("function", "g"),
    ]  # fmt: skip


def test_a_macro_goes_on_behind_a_comment_in_it() -> None:
    source = "#define _TWICE(x) /* do */ { \\\n  x; x; \\\n} /* while (0) */\n#undef _TWICE\nint f(int);"
    assert [(found.name, found.comment) for found in read(source).declarations] == [("f", "")]


@pytest.mark.parametrize(
    "source",
    [
        "class A;", "struct A; friend int f();", "bool operator==(A, A);", "~A();", "A() = delete;", "int A::f() {}",
        "enum class E : int;", "CHECK_SIZES(int, 4);", "struct A; using Base<int>::size;",
    ],
)  # fmt: skip
def test_what_is_not_asked_for(source: str) -> None:
    assert read(source).declarations == []


def test_types_hold_their_members() -> None:
    source = """
    namespace cg { namespace details { int helper(int); int shown(int); }
    using details::shown;
    class tile { int secret; void also_secret();
    public:
      // How many
      unsigned size() const { return details::helper(3); }
      struct Storage { int x, y; };
    };
    }
    typedef struct CUstream_tag { int flags; /**< Must be zero */ union { int a; float b; } either; } CUstream_params;
    """
    assert names(source) == [
        ("function", "cg::shown"), ("type", "cg::tile"), ("function", "cg::tile::size"), ("type", "cg::tile::Storage"),
        ("field", "cg::tile::Storage::x"), ("field", "cg::tile::Storage::y"), ("type", "CUstream_params"),
        ("field", "CUstream_params::flags"), ("type", "CUstream_params::either"), ("field", "CUstream_params::either::a"),
        ("field", "CUstream_params::either::b"),
    ]  # fmt: skip


def test_values_have_the_comments_above_or_beside_them() -> None:
    source = """
    /** Kinds */
    enum __device_builtin__ cudaKind
    {
        cudaKindA = 0,   /**< first */
        /** second */
        cudaKindB = (1 << 2),
        cudaKindC        // third,
                         // and last
    };
    """
    found = read(source).declarations
    assert [(value.name, value.text, plain(value.comment).text) for value in found] == [
        ("cudaKind", "enum __device_builtin__ cudaKind {...};", "Kinds"), ("cudaKindA", "cudaKindA = 0", "first"),
        ("cudaKindB", "cudaKindB = (1 << 2)", "second"), ("cudaKindC", "cudaKindC", "third, and last"),
    ]  # fmt: skip


def test_a_value_has_what_stands_above_it_and_beside_it() -> None:
    source = """
    enum mode {
        /* Modes of one operand */
        MODE_ABS = 1,   /**< Absolute value. @since 9.0 */
        /** @brief
         *
         * 2. MODE_SUM
         */
        MODE_SUM = 2,   /**< Adds both. */
        /** Divides. */
        MODE_DIV = 3    /**< By the second. */
    };
    """
    found = {value.name: plain(value.comment).text.splitlines() for value in read(source).declarations}
    assert found == {
        "mode": [], "MODE_ABS": ["Absolute value.", "Since 9.0", "Modes of one operand"],
        "MODE_SUM": ["2. MODE_SUM", "Adds both."], "MODE_DIV": ["Divides.", "By the second."],
    }  # fmt: skip


def test_a_headline_or_a_licence_is_no_comment_of_what_follows() -> None:
    assert one("/* Licence */\n#include <a.h>\nint f(int);").comment == ""
    assert one("/* All about f */\n\nint f(int);").comment == ""
    assert one("/* About f */\nint f(int);").comment == "/* About f */"
    assert one("/** About f */\n#if A\nint f(int);\n#endif").comment == "/** About f */"
    assert plain(one("/** \\defgroup MEMORY Memory\n * @{ */\nint f(int);").comment).text == ""


def test_macros_are_told_with_what_they_stand_for() -> None:
    assert read("#define DECL static \\\n  __device__\n#define EMPTY\n#define F(x) x\n").macros == [
        ("DECL", "static __device__"), ("EMPTY", ""),
    ]  # fmt: skip


def test_doxygen_becomes_plain_words() -> None:
    comment = plain("""/**
    * \\ingroup CUDA
    * \\brief Waits for \\p stream
    *
    * Blocks until <b>all</b> of ::cudaStream_t is done.
    * \\cuda_math_formula \\frac{1}{\\sqrt{x}} \\pm \\infty \\end_cuda_math_formula
    * \\internal
    * nobody's business
    * \\endinternal
    *
    * \\param[in] stream - Which &lt;one&gt;
    * \\param flags Must be
    *   zero
    *
    * \\return
    * ::cudaSuccess,
    * ::cudaErrorInvalidValue
    * \\notefnerr
    * \\note_async
    * \\note Only the host waits.
    *
    * \\sa ::cudaFree,
    * ::cudaMalloc
    */""")
    assert comment.brief == "Waits for stream"
    assert comment.text.splitlines() == [
        "Waits for stream", "stream: Which <one>", "flags: Must be zero", "Note: Only the host waits.",
        "Blocks until all of cudaStream_t is done. (1)/(sqrt(x)) ± infinity", "Returns: cudaSuccess, cudaErrorInvalidValue",
    ]  # fmt: skip


def test_what_is_returned_ends_where_sentences_begin() -> None:
    comment = plain("""/** Allocates.
     *
     * \\p \\p count of 2<sup>11</sup> at most, \\cuda_math_formula \\times \\pi \\end_cuda_math_formula.
     * \\return A pointer.
     *
     * - null on failure
     *
     * The following shows how.
     * \\code
     * auto p = allocate(3); // done \\endcode
     * Use \\sa free.
     */""")
    assert comment.text.splitlines() == [
        "Allocates.", "count of 2^11 at most, × pi.", "The following shows how.", "auto p = allocate(3); // done", "Use free.",
        "Returns: A pointer.", "- null on failure",
    ]  # fmt: skip


def test_restructured_text_becomes_plain_words() -> None:
    comment = plain("""//! @rst
    //! The ``WarpReduce`` class provides :ref:`collective <collective-primitives>` methods. More of it.
    //!
    //! .. image:: ../../img/logo.png
    //!     :align: center
    //!
    //! Overview
    //! ++++++++
    //!
    //! - @rowmajor
    //! - Uses thread\\ :sub:`0`
    //!
    //! .. code-block:: c++
    //!
    //!    int total = WarpReduce(storage).Sum(x);
    //!
    //! That was it.
    //! @endrst""")
    assert comment.brief == "The WarpReduce class provides collective methods."
    assert comment.text.splitlines()[1:] == [
        "More of it.", "- Uses thread0", "   int total = WarpReduce(storage).Sum(x);", "That was it.",
    ]  # fmt: skip


def test_a_long_text_is_cut_between_words() -> None:
    assert cut("one two three", 13) == "one two three"
    assert cut("one two, three", 13) == "one two …"
    assert len(plain(f"/** {'word ' * 400}*/").brief) <= BRIEF_CHARS


PIECES = [
    "{", "}", "(", ")", ";", ",", "\n", "#if A\n", "#else\n", "#endif\n", "#define X 1\n", "/** a */", "// b\n", "enum E",
    "class C", "namespace n", "typedef ", "public:", "int f", " = ", '"', "'", "\\", "<", ">", "template <", "~", "::",
    "[[", "*", "using a::b",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
@settings(max_examples=400, deadline=None)
def test_any_text_can_be_read(source: str) -> None:
    for found in read(source).declarations:
        assert found.name
        plain(found.comment)
