"""The cases that the default suite leaves out, so that it takes minutes: most of those that differ
from others only in the function or sizes, and some slow tests. `pytest --rest` and the campaign
`cases` run them."""

from collections import defaultdict
from collections.abc import Iterable

FEW = {
    "adapters/build_systems/test_build_systems.py": {
        "test_a_project_is_built_and_installed": 1,
    },
    "adapters/dask/test_cluster.py": {
        "test_workers_with_other_caches": 0,
    },
    "adapters/dask/test_map_samples.py": {
        "test_a_full_matrix_counts_as_the_nearest_of_its_structure": 1,
        "test_what_one_call_returns": 2,
    },
    "adapters/jax/test_batch_axes.py": {
        "test_values_and_derivatives": 2,
    },
    "adapters/jax/test_derivatives.py": {
        "test_a_full_matrix_counts_as_the_nearest_of_its_structure": 1,
        "test_cases_are_right": 4,
        "test_examples_are_right": 4,
    },
    "adapters/jax/test_second.py": {
        "test_full_matrices_for_structured_inputs": 1,
        "test_second_derivatives": 3,
    },
    "adapters/playground/test_programs.py": {
        "test_programs_run": 26,
    },
    "adapters/playground/test_server.py": {
        "test_wrong_functions_are_refused": 9,
    },
    "adapters/pytensor/test_pytensor.py": {
        "test_a_full_matrix_counts_as_the_nearest_of_its_structure": 2,
    },
    "adapters/torch/test_derivatives.py": {
        "test_a_full_matrix_counts_as_the_nearest_of_its_structure": 1,
        "test_gradcheck_in_both_modes_and_under_vmap": 4,
    },
    "adapters/torch/test_second.py": {
        "test_double_backward": 2,
        "test_second_derivatives": 3,
    },
    "campaign/test_builds.py": {
        "test_a_killed_build": 0,
    },
    "campaign/test_callers.py": {
        "test_memory_that_is_kept": 0,
    },
    "campaign/test_campaigns.py": {
        "test_sample": 0,
        "test_what_is_read_twice_at_each_step_takes_no_time_that_doubles": 0,
    },
    "campaign/test_kernels.py": {
        "test_what_is_wrong_is_found": 0,
    },
    "campaign/test_mutations.py": {
        "test_what_is_left_as_it_was_passes": 0,
        "test_what_is_refused_and_what_passes": 0,
    },
    "differentiate/test_derivatives.py": {
        "test_hvp_against_differences_and_hessian": 14,
    },
    "differentiate/test_expressions.py": {
        "test_every_operation_of_the_registry": 4,
    },
    "differentiate/test_growth.py": {
        "test_formulas_and_nodes_grow_linearly": 1,
        "test_kernels_grow_linearly": 0,
    },
    "differentiate/test_identities.py": {
        "test_identity": 7,
        "test_kernels": 0,
    },
    "differentiate/test_loop_peers.py": {
        "test_loop": 6,
    },
    "differentiate/test_random.py": {
        "test_every_operation_of_the_registry": 10,
        "test_formulas_of_random_expressions": 0,
    },
    "differentiate/test_second.py": {
        "test_second_derivatives_are_those_of_a_scalar_function": 1,
    },
    "driver/test_build.py": {
        "test_a_build_that_ends_among_its_moves_leaves_no_half_package": 2,
        "test_a_warm_build_leaves_nothing_to_compile": 0,
        "test_damaged_files_of_derivatrix_are_replaced": 22,
        "test_modules_with_second_derivatives_of_arrays": 0,
        "test_other_modules_are": 10,
        "test_the_text_holds_no_path_and_is_the_same_everywhere": 0,
        "test_verifying_a_package_leaves_it_importable_under_its_own_name": 0,
        "test_what_a_killed_build_left_is_swept_away_but_not_that_of_one_at_work": 1,
    },
    "driver/test_cache.py": {
        "test_a_cache_that_others_can_write_to_is_not_used": 6,
        "test_a_changed_helper_is_compiled_anew_with_its_callers": 0,
        "test_a_package_raises_errors_of_its_own": 0,
        "test_processes_that_compile_at_once": 0,
        "test_without_a_folder_of_the_user_it_is_where_numba_keeps_it": 0,
    },
    "driver/test_cli.py": {
        "test_a_build_that_is_stopped_leaves_nothing": 1,
        "test_a_file_that_ends_its_process_is_an_error": 1,
        "test_no_command_ends_well_without_its_work": 1,
        "test_second_derivatives_of_a_build": 0,
        "test_the_process_of_a_command_ends_with_it": 1,
        "test_workers_end_with_the_build": 1,
    },
    "driver/test_examples.py": {
        "test_a_function_that_is_off_by_a_ten_thousandth_fails": 1,
        "test_the_generated_module_is_right": 1,
    },
    "driver/test_function_files.py": {
        "test_the_certificate_vouches_for_the_modules_of_all_files": 0,
    },
    "emit/cuda/test_build_for_devices.py": {
        "test_verify_checks_both": 0,
    },
    "emit/cuda/test_device_kernels.py": {
        "test_arrays_without_entries": 8,
        "test_example": 1,
        "test_helper": 5,
        "test_identity": 1,
        "test_launches": 6,
    },
    "emit/cuda/test_random_rows.py": {
        "test_random_functions_of_rows": 0,
    },
    "emit/cuda/test_simulated.py": {
        "test_a_wrong_kernel_is_noticed": 0,
        "test_identity": 4,
        "test_results_do_not_depend_on_the_size_of_launches": 0,
    },
    "emit/test_loop_operators.py": {
        "test_products_are_those_of_the_array": 4,
    },
    "emit/test_loop_verification.py": {
        "test_a_fault_in_a_rule_of_loops": 0,
        "test_a_fault_in_the_text_of_a_loop": 2,
        "test_names_of_carries_and_slices_may_be_any": 0,
    },
    "emit/test_loops.py": {
        "test_jacobians_and_hessians": 0,
        "test_kernels": 1,
        "test_verification_of_a_step_with_an_inverse": 0,
    },
    "emit/test_modules.py": {
        "test_kernels_of_more_than_thirty_arguments": 0,
        "test_linear_algebra_errors_name_the_operation": 2,
        "test_module": 1,
        "test_plans": 2,
        "test_special_functions": 0,
        "test_what_is_compiled_late_is_compiled_elsewhere": 0,
    },
    "emit/test_names.py": {
        "test_names_in_kernels": 1,
        "test_names_of_inputs_and_sizes": 0,
        "test_names_on_devices": 1,
    },
    "emit/test_oracle.py": {
        "test_comparison_refuses_a_planted_fault": 3,
        "test_the_text_of_a_node_is_its_value": 33,
        "test_verification_refuses_a_planted_fault": 0,
    },
    "emit/test_segments.py": {
        "test_kernels": 5,
        "test_samples": 3,
        "test_verification_notices_faults": 2,
    },
    "emit/test_structured_inputs.py": {
        "test_all_kinds": 0,
        "test_copies": 4,
        "test_derivatives_are_those_of_the_function_of_the_full_array": 1,
        "test_devices": 1,
        "test_samples": 0,
        "test_straight_line_code": 1,
    },
    "emit/test_types.py": {
        "test_mypy_finds_the_planted_errors_and_no_others": 0,
        "test_the_page_runs": 0,
    },
    "formulas/test_formulas.py": {
        "test_formulas_for_reading_stand_for_the_derivatives": 11,
        "test_what_is_repeated_has_a_books_letter": 3,
    },
    "formulas/test_latex.py": {
        "test_texts_are_latex": 2,
    },
    "formulas/test_nested.py": {
        "test_nested_formulas": 4,
    },
    "formulas/test_trees.py": {
        "test_contraction": 1,
        "test_factoring": 1,
        "test_indicators_and_products_with_ones": 16,
        "test_layout": 6,
        "test_normal_forms": 16,
        "test_numpy_texts": 16,
        "test_reductions": 6,
        "test_replacing": 16,
        "test_sharing": 1,
        "test_transposition": 16,
    },
    "formulas/test_vec.py": {
        "test_identity": 40,
    },
    "frontends/test_calls.py": {
        "test_every_operation_of_the_registry": 16,
        "test_names_and_sizes_are_those_of_the_arguments": 20,
    },
    "frontends/test_loops.py": {
        "test_first_derivatives": 16,
        "test_second_derivatives": 1,
    },
    "frontends/test_names.py": {
        "test_functions_of_the_longest_names_keep_their_code": 0,
        "test_names_of_helpers_and_locals_may_be_used": 1,
        "test_public_functions_read_no_name_without_an_underscore": 0,
    },
    "ir/test_content.py": {
        "test_modules_of_two_roots": 0,
        "test_two_functions_of_one_name": 3,
        "test_what_changes_between_sessions": 0,
    },
    "ir/test_small_sizes.py": {
        "test_against_numpy": 11,
        "test_every_operation": 10,
        "test_nothing_goes_wrong_without_entries": 1,
        "test_too_few_entries_are_refused": 0,
    },
    "operations/test_adjugate.py": {
        "test_a_planted_fault_is_refused": 0,
        "test_determinants_are_verified_where_single_precision_has_no_such_numbers": 0,
        "test_gradients_of_determinants_at_singular_matrices": 0,
        "test_operators_at_singular_matrices": 0,
        "test_powers_and_batches": 0,
        "test_second_derivatives_at_singular_matrices": 0,
    },
    "operations/test_equations.py": {
        "test_riccati": 6,
    },
    "operations/test_factorisations.py": {
        "test_first_and_second_derivatives": 8,
        "test_matrices_that_lack_rank_up_to_rounding": 0,
        "test_pseudoinverses_of_known_rank": 0,
        "test_repeated_values": 19,
        "test_wide_qr": 0,
    },
    "operations/test_higher.py": {
        "test_a_third_derivative_is_compiled_and_verified": 0,
    },
    "operations/test_matrix_functions.py": {
        "test_stacks_in_single_precision": 2,
    },
    "operations/test_products_of_vectors.py": {
        "test_distances_of_equal_and_close_rows": 0,
    },
    "operations/test_register.py": {
        "test_a_fault_in_the_record_does_not_pass": 1,
    },
    "operations/test_reshape.py": {
        "test_kernels_of_every_derivative": 0,
        "test_kernels_of_jacobians": 0,
    },
    "operations/test_root.py": {
        "test_modules_of_roots": 0,
    },
    "operations/test_rotation.py": {
        "test_a_rotation_is_an_exponential": 0,
        "test_spherical_functions": 3,
    },
    "operations/test_slopes.py": {
        "test_slopes": 81,
        "test_values_at_the_end_of_a_domain": 2,
    },
    "operations/test_spectral.py": {
        "test_differences_at_points_close_and_apart": 11,
        "test_nearest_rotations_where_singular_values_are_repeated": 1,
        "test_parts_of_singular_value_decompositions": 1,
        "test_projectors_need_a_gap_across_the_cut_alone": 2,
        "test_second_and_third_derivatives": 9,
        "test_second_derivatives_by_singular_values": 3,
    },
    "operations/test_systems.py": {
        "test_a_quadratic_program": 0,
    },
    "operations/test_verified.py": {
        "test_verification": 1,
    },
    "plan/test_batch_last.py": {
        "test_compiled": 3,
        "test_determinants_have_signs": 0,
        "test_identities": 0,
        "test_later_calls_refuse_wrong_arrays_too": 1,
        "test_one_that_fails": 0,
        "test_plans": 6,
    },
    "plan/test_lengths.py": {
        "test_kernels": 2,
    },
    "plan/test_plan.py": {
        "test_random_graphs_compiled": 1,
    },
    "plan/test_row_shares.py": {
        "test_a_gradient_that_is_the_jacobian": 0,
    },
    "plan/test_sample_parts.py": {
        "test_blocks_of_samples": 0,
    },
    "plan/test_sample_sums.py": {
        "test_a_part_may_fail": 0,
        "test_a_part_may_make_arrays": 0,
        "test_inputs_called_as_what_adds_them_up": 0,
        "test_parts_add_up": 16,
        "test_products_of_matrices": 0,
        "test_samples_last_in_memory": 1,
        "test_threads": 3,
        "test_what_is_compiled_beforehand": 0,
    },
    "plan/test_simd.py": {
        "test_any_lane_may_fail": 3,
    },
    "plan/test_symmetric_products.py": {
        "test_compiled": 1,
        "test_half_is_enough": 9,
    },
    "plan/test_unroll.py": {
        "test_modules": 0,
    },
    "plan/test_variants.py": {
        "test_every_order_computes_the_same": 6,
        "test_modules": 0,
    },
    "plan/test_within_range.py": {
        "test_kernels": 1,
        "test_second_derivatives": 1,
    },
    "runtime/test_certificate_page.py": {
        "test_right_derivatives_agree_at_the_best_step": 3,
    },
    "runtime/test_faults.py": {
        "test_a_fault_at_special_points_alone_is_caught": 8,
        "test_every_class_of_faults_is_caught": 1,
    },
    "runtime/test_other_processes.py": {
        "test_a_function_without_its_module_says_so_when_it_is_called": 0,
        "test_a_module_takes_its_text_to_another_cache": 0,
        "test_another_version_says_so": 1,
        "test_declared_functions": 1,
        "test_threads_that_unpickle_at_once": 0,
    },
    "runtime/test_outputs.py": {
        "test_a_module_for_cuda": 0,
        "test_planted_faults_are_found": 1,
        "test_verification_names_the_outputs": 0,
    },
    "runtime/test_reach.py": {
        "test_a_function_wrong_in_special_cases_alone_fails": 11,
        "test_a_kernel_wrong_at_large_sizes_alone_fails": 1,
        "test_eigenvectors_without_a_correct_digit_in_float32_pass": 0,
        "test_kinks_and_poles_are_no_faults": 0,
    },
    "runtime/test_scipy.py": {
        "test_a_constrained_portfolio": 0,
        "test_a_full_matrix_counts_as_the_nearest_of_its_structure": 1,
        "test_batches": 0,
        "test_orthogonal_inputs": 0,
        "test_scalar_functions_are_minimised": 1,
    },
    "runtime/test_scipy_outputs.py": {
        "test_outputs_are_stacked": 0,
    },
    "runtime/test_thorough.py": {
        "test_an_error_in_the_eighth_digit_is_noticed": 0,
        "test_declarations_in_50_digits": 52,
    },
    "runtime/test_verify.py": {
        "test_a_point_where_nothing_can_be_seen_is_reported": 0,
        "test_a_result_off_by_one_in_ten_thousand_fails": 4,
        "test_a_right_function_passes_where_most_points_tell_nothing": 2,
        "test_a_right_module_passes": 5,
        "test_a_single_wrong_entry_fails": 3,
        "test_kernels_wrong_in_float32_alone_fail": 1,
        "test_what_is_wrong_disagrees_with_the_declaration": 1,
        "test_wrong_batch_axes_fail": 1,
    },
    "simplify/test_lengths.py": {
        "test_derivatives_at_zero_and_near_it": 14,
        "test_kernels": 0,
        "test_the_gradient_of_a_process": 0,
        "test_the_length_of_a_tangent_at_a_definite_matrix": 0,
        "test_values_at_zero_are_those_of_the_declaration": 4,
    },
    "simplify/test_selections.py": {
        "test_kernels_select": 1,
    },
    "structured/test_operators.py": {
        "test_operators_are_the_dense_arrays": 27,
    },
    "templates/test_batch_axes.py": {
        "test_results_are_those_of_each_sample": 13,
    },
    "templates/test_bounds.py": {
        "test_a_part_that_fails_is_found": 0,
        "test_a_planted_line_is_found": 1,
        "test_a_wrong_step_between_rows_for_blas_is_found": 0,
        "test_sample": 1,
        "test_the_sample_calls_all_helpers_that_have_arrays": 0,
        "test_what_is_not_written_is_found": 0,
    },
    "templates/test_callers.py": {
        "test_the_end_of_a_busy_process": 0,
    },
    "templates/test_elementary.py": {
        "test_errors": 11,
        "test_reordered_sums_of_the_caller_change_nothing": 11,
    },
    "templates/test_kernels.py": {
        "test_factorisations_of_both_kinds_in_one_module": 0,
        "test_kernels_give_their_memory_back_whether_they_fail_or_not": 0,
        "test_kernels_that_fail": 4,
        "test_lu": 5,
        "test_records_kernel": 7,
        "test_special_functions": 6,
    },
    "versions/test_functions.py": {
        "test_every_file_of_the_support_is_built": 0,
    },
}
"""File -> test -> number of its cases in the default suite, spread evenly over all."""


def left_out(tests: Iterable[str]) -> set[str]:
    """Return the tests, given by their names in pytest, that the default suite leaves out.

    Raises KeyError for a test in `FEW` that its file does not have."""
    cases: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for test in tests:
        path, _, name = test.partition("::")
        cases[path.removeprefix("tests/")][name.partition("[")[0]].append(test)
    result: set[str] = set()
    for path in FEW.keys() & cases.keys():
        for name, few in FEW[path].items():
            result.update(_but(few, dict(cases[path])[name]))
    return result


def _but(few: int, tests: list[str]) -> set[str]:
    """All but so many of the tests, which are spread evenly."""
    return {*tests} - {tests[place * len(tests) // few] for place in range(few)}
