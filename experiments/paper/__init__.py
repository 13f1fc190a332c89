"""The paper in miniature: train every run of a plan, and write a report with a verdict for each claim.

plan -> problems, base policies, base samples -> training runs -> records.json -> tables, figures, claims -> report
"""
