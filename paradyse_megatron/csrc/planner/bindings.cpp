// paradyse_megatron.planner._native: the planner's searches for Python. planner/native.py is the only caller.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "curves.hpp"
#include "exact.hpp"
#include "head.hpp"

namespace py = pybind11;
using namespace paradyse;

namespace {

int64_t to_bytes(const py::handle& number) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
    if (overflow || value > kMostBytes)
        throw Overflow("A cost of " + std::string(py::str(number)) + " bytes is above 2^62, the most that is counted.");
    if (value < 0) throw std::invalid_argument("A cost of " + std::string(py::str(number)) + " bytes is negative.");
    return value;
}

// A budget above all that is counted is as good as none, and one below zero as bad as any.
int64_t to_budget(const py::int_& number) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow) return overflow > 0 ? kMostBytes : -1;
    return std::clamp<int64_t>(value, -1, kMostBytes);
}

std::vector<Options> to_kinds(const py::sequence& kinds) {
    std::vector<Options> found;
    for (const py::handle& options : kinds) {
        found.emplace_back();
        for (const py::handle& item : options) {
            const auto cost = py::reinterpret_borrow<py::sequence>(item);
            if (cost.size() != 4)
                throw std::invalid_argument("An option has four costs: time, saved, workspace, buffer.");
            const double milliseconds = checked_milliseconds(cost[0].cast<double>());
            found.back().push_back({milliseconds, to_bytes(cost[1]), to_bytes(cost[2]), to_bytes(cost[3])});
        }
        if (found.back().empty()) throw std::invalid_argument(kNoOption);
    }
    return found;
}

std::vector<int> to_layers(const std::vector<int>& layers, size_t num_kinds) {
    if (layers.empty()) throw std::invalid_argument("A plan needs at least one layer.");
    for (int kind : layers)
        if (kind < 0 || kind >= static_cast<int>(num_kinds))
            throw std::invalid_argument("A layer is of kind " + std::to_string(kind) + ", which has no costs.");
    return layers;
}

int64_t to_in_flight(int64_t in_flight) {
    if (in_flight < 1) throw std::invalid_argument("At least one micro-batch must be in flight.");
    return in_flight;
}

Problem to_problem(const py::sequence& kinds, const std::vector<int>& layers, const py::int_& budget,
                   const py::int_& head, int64_t in_flight, const py::int_& head_buffer) {
    std::vector<Options> options = to_kinds(kinds);
    const std::vector<int> checked = to_layers(layers, options.size());
    Problem problem{std::move(options), checked, to_budget(budget), to_bytes(head), to_in_flight(in_flight),
                    to_bytes(head_buffer)};
    problem.check();
    return problem;
}

Choice checked(const Problem& problem, const Choice& choice) {
    if (choice.size() != problem.layers.size())
        throw std::invalid_argument("A choice needs one option for each layer.");
    for (int layer = 0; layer < problem.num_layers(); ++layer)
        if (choice[layer] < 0 || choice[layer] >= static_cast<int>(problem.options(layer).size()))
            throw std::invalid_argument("Layer " + std::to_string(layer) + " has no such option.");
    return choice;
}

py::object as_tuple(const std::optional<Choice>& choice) {
    return choice ? py::object(py::tuple(py::cast(*choice))) : py::none();
}

py::tuple as_tuple(const Draft& draft) {
    py::tuple choice(draft.choice.size());
    for (size_t layer = 0; layer < draft.choice.size(); ++layer) choice[layer] = draft.choice[layer];
    return py::make_tuple(draft.head, choice, draft.milliseconds, draft.peak, draft.fits);
}

Costs to_costs(const py::sequence& kinds, const std::vector<std::tuple<double, py::int_, py::int_>>& heads) {
    Costs costs{to_kinds(kinds), {}};
    for (const auto& [milliseconds, saved, buffer] : heads)
        costs.heads.push_back({checked_milliseconds(milliseconds), to_bytes(saved), to_bytes(buffer)});
    check_shape(costs.kinds, costs.heads);
    return costs;
}

}  // namespace

PYBIND11_MODULE(_native, module) {
    module.doc() = "Searches for plans, in 64-bit integers that are checked for overflow.";
    py::register_exception<Overflow>(module, "Overflow", PyExc_ValueError);

    py::class_<Problem>(module, "Problem")
        .def(py::init(&to_problem))
        .def("peak", [](const Problem& p, const Choice& choice) { return p.peak(checked(p, choice)); })
        .def("milliseconds", [](const Problem& p, const Choice& choice) { return p.milliseconds(checked(p, choice)); })
        .def("greedy", [](const Problem& p) { return as_tuple(greedy(p)); })
        .def("exact", [](const Problem& p) { return as_tuple(exact(p)); })
        .def("least_saved", [](const Problem& p) { return as_tuple(least_saved(p)); })
        .def("least_memory", [](const Problem& p) { return as_tuple(std::optional<Choice>(least_memory(p))); });

    py::class_<Costs>(module, "Costs").def(py::init(&to_costs));

    py::class_<Curve>(module, "Curve").def(py::init<Parts>()).def("__call__", &Curve::operator());

    py::class_<CurveTable>(module, "CurveTable")
        .def(py::init<std::vector<std::vector<CurveTable::OfOption>>, std::vector<CurveTable::OfHead>>())
        .def("at", &CurveTable::at);

    py::class_<Stage>(module, "Stage")
        .def(py::init([](const std::vector<int>& layers, size_t num_kinds, const py::int_& budget, int64_t in_flight) {
            return Stage{to_layers(layers, num_kinds), num_kinds, to_budget(budget), to_in_flight(in_flight)};
        }))
        .def("best", [](const Stage& stage, const Costs& costs) { return as_tuple(stage.best(costs)); })
        .def("weigh", [](const Stage& stage, const Costs& costs, int head, const Choice& choice) {
            return as_tuple(stage.weigh(costs, head, checked(stage.problem(costs, head), choice)));
        })
        .def("some_fits", &Stage::some_fits);
}
