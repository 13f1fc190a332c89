"""The paper in miniature: `outcome-rl reproduce` trains what the plan lists and writes a report with a verdict a claim.

plan -> problems, base policies, base samples -> runs of the driver -> records.json -> tables, figures, claims -> report
"""
